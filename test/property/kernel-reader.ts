/** A process in a node's namespace that reads its kernel as `kube-proxy prove --kernel` does. */
import process from "node:process";
import { kernelDumps, kernelHooks } from "../../src/tools/cli/trace-kernel.ts";

process.on("message", (family: "IPv4" | "IPv6") => {
  void Promise.all([kernelDumps(family), kernelHooks()]).then(([{ dumps }, hooks]) => {
    // Functions cannot be sent: of virtual servers, what ipvsadm printed.
    const whole = dumps.filter(({ kind }) => kind !== "chains");
    const servers = dumps.flatMap((dump) => (dump.kind === "chains" ? [dump.text ?? ""] : []));
    process.send?.({ dumps: hooks === undefined ? whole : [...whole, hooks], servers });
  });
});

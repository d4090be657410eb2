/** A process in a node's namespace that reads its kernel as `kube-proxy prove --kernel` does. */
import process from "node:process";
import { devicesHere } from "../../src/kernel/route/devices.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { kernelDumps, kernelHooks, type SharedReading } from "../../src/tools/cli/trace-kernel.ts";
import type { Dump } from "../../src/trace/dump/recognise.ts";

/** What it answers. */
export interface KernelRead {
  readonly dumps: readonly Dump[];
  /** What ipvsadm printed: functions cannot be sent. */
  readonly servers: readonly string[];
  /** In which it was read. */
  readonly generation?: number | undefined;
  readonly error?: string;
}

async function read(family: IpFamily): Promise<KernelRead> {
  const shared: SharedReading = {};
  const [{ dumps }, hooks] = await Promise.all([kernelDumps(family, shared), devicesHere().then(kernelHooks)]);
  const whole = dumps.filter(({ kind }) => kind !== "chains");
  const servers = dumps.flatMap((dump) => (dump.kind === "chains" ? [dump.text ?? ""] : []));
  return { dumps: hooks === undefined ? whole : [...whole, hooks], servers, generation: shared.generation };
}

process.on("message", (family: IpFamily) => {
  const failed = (error: unknown): KernelRead => ({ dumps: [], servers: [], error: String(error) });
  void read(family)
    .catch(failed)
    .then((answer) => process.send?.(answer));
});

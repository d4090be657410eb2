/** What the program loads on a Windows node: nothing that speaks to Linux. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { modesOn } from "../../src/modes/registry.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** What is imported with `import()` on the way from the command line to a running proxy, in every mode of Windows. */
const LOADED = [
  "src/tools/cli/main.ts",
  "src/tools/cli/proxy-command.ts",
  "src/agent/daemon/run-proxy.ts",
  "src/agent/cluster/manifests/manifests-source.ts",
  "src/agent/cluster/apiserver/index.ts",
  "src/modes/userspace/runtime.ts",
  "src/modes/userspace/windows-host.ts",
  "src/modes/kernelspace/runtime.ts",
];

/** Interfaces and constants, and the C library, which is opened with the first call. */
const HARMLESS = [
  ...["src/kernel/conntrack/conntrack.ts", "src/kernel/netlink/libc.ts"],
  // The sizes that ebpf mode's settings may ask for.
  ...["src/modes/ebpf/socket-balancer/maps.ts", "src/kernel/bpf/layout.ts"],
];
const OF_LINUX =
  /^src\/kernel\/(?:bpf|conntrack|iptables|netlink|nfacct|nftables|route)\/|^src\/kernel\/sysctl\.ts$|^src\/modes\/(?:ebpf\/socket-balancer|ipvs\/ipset|ipvs\/kernel)\//;

/** Every module that is loaded with these, but for `import type` and `import()`. */
function closureOf(entries: readonly string[]): ReadonlySet<string> {
  const found = new Set<string>();
  const visit = (path: string): void => {
    if (found.has(path)) return;
    found.add(path);
    const text = readFileSync(join(ROOT, path), "utf8").replaceAll(/^import type [^;]*;/gm, "");
    for (const [, target = ""] of text.matchAll(/^(?:import|export)\s(?:[^"';]*?\sfrom\s)?"(\.\.?\/[^"]+)"/gm)) {
      visit(normalize(join(dirname(path), target)));
    }
  };
  for (const entry of entries) visit(entry);
  return found;
}

test("no netlink, no iptables, no sysctls", () => {
  const loaded = closureOf(LOADED);
  assert.ok(loaded.size > 100, "the imports are found at all");
  const ofLinux = [...loaded].filter((path) => OF_LINUX.test(path) && !HARMLESS.includes(path));
  assert.deepEqual(ofLinux, []);
});

test("every mode of Windows is among them", () => {
  for (const { name } of modesOn("win32")) assert.ok(LOADED.includes(`src/modes/${name}/runtime.ts`), name);
});

test("on Linux, the boundary to HNS is not loaded", () => {
  const ofWindows = /kernelspace|windows/;
  const loaded = closureOf([
    ...LOADED.filter((path) => !ofWindows.test(path)),
    ...["src/agent/daemon/linux-kernel.ts", "src/modes/iptables/runtime.ts", "src/modes/userspace/linux-host.ts"],
  ]);
  assert.deepEqual(
    [...loaded].filter((path) => path.startsWith("src/modes/kernelspace/hcn/")),
    [],
  );
});

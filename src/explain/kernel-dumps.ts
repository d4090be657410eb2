/** Asks the tools of this host what the kernel has. Reading needs CAP_NET_ADMIN. */
import { DumpError, type DumpKind } from "../inspect/dumps/inventory.ts";
import { type Exec, ExecError, execProcess } from "../kernel/process.ts";
import type { IpFamily } from "../net/ip.ts";

interface KernelDump {
  /** The command, for messages. */
  readonly name: string;
  readonly text: string;
  readonly family: IpFamily;
}

const TIMEOUT_MS = 30_000;

/** What prints one kind of one family; IP sets and virtual servers of both families come together. */
const COMMANDS: Readonly<Record<DumpKind, (family: IpFamily, table: string) => readonly string[]>> = {
  "iptables-save": (family) => [family === "IPv4" ? "iptables-save" : "ip6tables-save"],
  nft: (family, table) => ["nft", "list", "table", family === "IPv4" ? "ip" : "ip6", table],
  ipset: () => ["ipset", "save"],
  ipvsadm: () => ["ipvsadm", "-S", "-n"],
};

/** @throws DumpError when a tool is missing or refuses. */
export async function kernelDumps(
  kinds: readonly DumpKind[],
  families: readonly IpFamily[],
  table: string,
  exec: Exec = execProcess,
): Promise<readonly (KernelDump & { readonly kind: DumpKind })[]> {
  const commands = kinds.flatMap((kind) => {
    const all = families.map((family) => ({ kind, family, argv: COMMANDS[kind](family, table) }));
    return kind === "ipset" || kind === "ipvsadm" ? all.slice(0, 1) : all;
  });
  return await Promise.all(
    commands.map(async ({ argv, family, kind }) => {
      const [file = "", ...args] = argv;
      return { name: argv.join(" "), family, kind, text: await outputOf(exec, file, args) };
    }),
  );
}

/** The table of nftables mode may not be there: then nothing is printed. */
async function outputOf(exec: Exec, file: string, args: readonly string[]): Promise<string> {
  const name = [file, ...args].join(" ");
  try {
    const { status, stdout, stderr } = await exec(file, args, { timeoutMs: TIMEOUT_MS });
    if (status === 0) return stdout;
    // No such table: nothing is there, which is an answer.
    if (file === "nft" && /No such file or directory/.test(stderr)) return "";
    throw new DumpError(`${name}: ${stderr.trim() || `ended with status ${status}`}`);
  } catch (error) {
    if (error instanceof ExecError) throw new DumpError(error.message);
    throw error;
  }
}

/** Dumps what the kernel has with this host's tools, which needs CAP_NET_ADMIN. */
import { DumpError, type DumpKind } from "../../contract/inspect/dumps/inventory.ts";
import { type Exec, ExecError, execProcess } from "../../kernel/process.ts";
import type { IpFamily } from "../../net/ip.ts";

const TIMEOUT_MS = 30_000;

/** The command for one kind and family; IP sets and virtual servers of both families are printed together. */
const COMMANDS: Readonly<Record<DumpKind, (family: IpFamily, table: string) => readonly string[]>> = {
  "iptables-save": (family) => [family === "IPv4" ? "iptables-save" : "ip6tables-save"],
  nft: (family, table) => ["nft", "list", "table", family === "IPv4" ? "ip" : "ip6", table],
  ipset: () => ["ipset", "save"],
  ipvsadm: () => ["ipvsadm", "-S", "-n"],
};

/** @returns `name`: the command, for messages. @throws DumpError if a tool is missing or fails. */
export async function kernelDumps(
  kinds: readonly DumpKind[],
  families: readonly IpFamily[],
  table: string,
  exec: Exec = execProcess,
) {
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

async function outputOf(exec: Exec, file: string, args: readonly string[]): Promise<string> {
  const name = [file, ...args].join(" ");
  try {
    const { status, stdout, stderr } = await exec(file, args, { timeoutMs: TIMEOUT_MS });
    if (status === 0) return stdout;
    // The table does not exist, which is a valid answer.
    if (file === "nft" && /No such file or directory/.test(stderr)) return "";
    throw new DumpError(`${name}: ${stderr.trim() || `ended with status ${status}`}`);
  } catch (error) {
    if (error instanceof ExecError) throw new DumpError(error.message);
    throw error;
  }
}

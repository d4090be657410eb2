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

/** The commands that print one kind. The table of nftables mode may not be there: then nothing is printed. */
function commandsOf(
  kind: DumpKind,
  families: readonly IpFamily[],
  table: string,
): { readonly argv: readonly string[]; readonly family: IpFamily }[] {
  const [first = "IPv4"] = families;
  switch (kind) {
    case "iptables-save":
      return families.map((family) => ({ argv: [family === "IPv4" ? "iptables-save" : "ip6tables-save"], family }));
    case "nft":
      return families.map((family) => ({
        argv: ["nft", "list", "table", family === "IPv4" ? "ip" : "ip6", table],
        family,
      }));
    case "ipset":
      return [{ argv: ["ipset", "save"], family: first }];
    case "ipvsadm":
      return [{ argv: ["ipvsadm", "-S", "-n"], family: first }];
  }
}

/** @throws DumpError when a tool is missing or refuses. */
export async function kernelDumps(
  kinds: readonly DumpKind[],
  families: readonly IpFamily[],
  table: string,
  exec: Exec = execProcess,
): Promise<readonly (KernelDump & { readonly kind: DumpKind })[]> {
  const commands = kinds.flatMap((kind) => commandsOf(kind, families, table).map((command) => ({ ...command, kind })));
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
    // No such table: nothing is there, which is an answer.
    if (file === "nft" && /No such file or directory/.test(stderr)) return "";
    throw new DumpError(`${name}: ${stderr.trim() || `ended with status ${status}`}`);
  } catch (error) {
    if (error instanceof ExecError) throw new DumpError(error.message);
    throw error;
  }
}

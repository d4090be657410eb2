/** The rules that `kube-proxy diff` compares with the wanted ones: this kernel's, or those of dumps, with the addresses of their node. */
import { basename } from "node:path";
import type { DumpKind, Inventory } from "../../contract/inspect/dumps/inventory.ts";
import { savedFamily, savesIn } from "../../kernel/iptables/parser/ruleset.ts";
import type { Exec } from "../../kernel/process.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { gapsIn } from "../../trace/dump/gaps.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { ExplainedCluster } from "../explain/explained-cluster.ts";
import { dumpedAddresses } from "../explain/host-addresses.ts";
import { merged } from "../explain/wanted.ts";
import { readInputText } from "./bounded-input.ts";
import { dumpFiles, dumpText, inventoryOf, kindOfDump } from "./dump-folder.ts";
import { UsageError } from "./output.ts";
import { toolText } from "./tool-text.ts";

interface GivenDumps {
  readonly dumps: readonly string[];
  /** The proxy mode of the wanted rules. */
  readonly mode: string;
  /** Of rules whose text does not tell it. */
  readonly family: IpFamily | undefined;
}

/** The addresses in a sysdump; undefined if there is no sysdump. */
export async function sysdumpAddresses(paths: readonly string[]): Promise<readonly IpAddress[] | undefined> {
  const files = await dumpFiles(paths, () => false);
  const found = files.find(({ path, isOfFolder }) => isOfFolder && basename(path) === "addresses.txt");
  if (found === undefined) return undefined;
  return dumpedAddresses([{ kind: "addresses", text: await readInputText(found.path, process.stdin) }]);
}

/** The command for one kind and family; IP sets and virtual servers of both families are printed together. */
const COMMANDS: Readonly<Record<DumpKind, (family: IpFamily, table: string) => readonly string[]>> = {
  "iptables-save": (family) => [family === "IPv4" ? "iptables-save" : "ip6tables-save"],
  nft: (family, table) => ["nft", "list", "table", family === "IPv4" ? "ip" : "ip6", table],
  ipset: () => ["ipset", "save"],
  ipvsadm: () => ["ipvsadm", "-S", "-n"],
};

/** What the kernel has, by kind of tool. @throws UsageError if a tool fails */
export async function inventoriesOfKernel(
  kinds: readonly DumpKind[],
  { families }: ExplainedCluster,
  table: string,
): Promise<ReadonlyMap<DumpKind, Inventory>> {
  const dumps = await kernelTexts(
    kinds,
    families.map(({ node }) => node.family),
    table,
  );
  const read = (dump: (typeof dumps)[number]) => inventoryOf(dump.name, dump.text, { ...dump, table });
  const found = (kind: DumpKind) => dumps.filter((dump) => dump.kind === kind).map(read);
  return new Map(kinds.map((kind) => [kind, merged(kind, found(kind))]));
}

/** @returns `name`: the command, for messages. @throws UsageError if a tool is missing or fails */
export async function kernelTexts(
  kinds: readonly DumpKind[],
  families: readonly IpFamily[],
  table: string,
  exec?: Exec,
) {
  const commands = kinds.flatMap((kind) => {
    const all = families.map((family) => ({ kind, family, argv: COMMANDS[kind](family, table) }));
    return kind === "ipset" || kind === "ipvsadm" ? all.slice(0, 1) : all;
  });
  return await Promise.all(
    commands.map(async ({ argv, family, kind }) => {
      const text = await toolText(argv, exec).catch((error) => {
        // The table does not exist, which is a valid answer.
        if (kind === "nft" && /No such file or directory/.test(error)) return "";
        throw error;
      });
      return { name: argv.join(" "), family, kind, text };
    }),
  );
}

/** What dumps tell. @throws UsageError for one that is of no kind that the mode has */
export async function inventoriesOfDumps(
  { dumps, mode, family }: GivenDumps,
  kinds: readonly DumpKind[],
  table: string,
  input: NodeJS.ReadableStream,
  warn: (message: string) => void,
): Promise<ReadonlyMap<DumpKind, Inventory>> {
  const found = new Map<DumpKind, Inventory>();
  const saved: Dump[] = [];
  // In a folder, files of other tools than the mode's are not a mistake.
  for (const { path, name, isOfFolder } of await dumpFiles(dumps, (file) =>
    /^(?:nft|addresses|ip6?tables-legacy-save)\.txt$/.test(file),
  )) {
    const text = await dumpText(path, name, input);
    if (isOfFolder && !kinds.some((kind) => kind === kindOfDump(text))) continue;
    const inventory = inventoryOf(name, text, { kind: kindOfDump(text), family, table });
    if (inventory.missing !== undefined) warn(`${name}: ${inventory.missing}`);
    if (!kinds.includes(inventory.kind)) {
      throw new UsageError(
        `${name} is of ${inventory.kind}, and mode ${mode} writes ${kinds.join(", ")}: is --mode right?`,
      );
    }
    const parts = inventory.kind === "iptables-save" ? savesIn(text) : [];
    saved.push(...parts.map((part) => ({ kind: "iptables", family: savedFamily(part), text: part }) as const));
    const known = found.get(inventory.kind);
    found.set(inventory.kind, known === undefined ? inventory : merged(inventory.kind, [known, inventory]));
  }
  // Virtual servers are not asked for: only what the dumps tell about is compared.
  for (const gap of gapsIn([...saved, { kind: "chains", tool: "ipvsadm", chains: () => [] }])) warn(gap);
  if (found.size === 0)
    throw new UsageError(`no dump is of ${kinds.join(", ")}, which mode ${mode} writes: is --mode right?`);
  return found;
}

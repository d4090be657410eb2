/** The rules that `kube-proxy diff` compares with the wanted ones: this kernel's, or those of dumps, with the addresses of their node. */
import { basename } from "node:path";
import type { DumpKind, Inventory } from "../../contract/inspect/dumps/inventory.ts";
import type { Exec } from "../../kernel/process.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";
import { gapsIn } from "../../trace/dump/gaps.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import type { ExplainedCluster } from "../explain/explained-cluster.ts";
import { dumpedAddresses } from "../explain/host-addresses.ts";
import { merged, toolOf } from "../explain/inventories.ts";
import { readInputText } from "./bounded-input.ts";
import { dumpFiles, dumpText, inventoryIn } from "./dump-folder.ts";
import { UsageError } from "./output.ts";
import { toolText } from "./tool-text.ts";
import { dumpReaders, dumpsIn } from "./trace-rules.ts";

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
  const readers = await dumpReaders();
  const read = ({ name, kind, text, family }: (typeof dumps)[number]) =>
    text.trim() === ""
      ? emptyInventory(kind, family, table)
      : inventoryIn(dumpsIn(text, name, readers), name, { family, table });
  const found = (kind: DumpKind) => dumps.filter((dump) => dump.kind === kind).map(read);
  return new Map(kinds.map((kind) => [kind, merged(kind, found(kind))]));
}

/** An empty output is valid from a tool that was run, but not in a file. */
function emptyInventory(kind: DumpKind, family: IpFamily, table: string): Inventory {
  const places: Readonly<Record<DumpKind, readonly string[]>> = {
    "iptables-save": [`${family} nat`, `${family} filter`],
    nft: [`${family === "IPv6" ? "ip6" : "ip"} ${table}`],
    ipset: ["ipset"],
    ipvsadm: ["ipvs"],
  };
  return { kind, places: new Set(places[kind]), holders: new Map() };
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
  const readers = await dumpReaders();
  for (const { path, name, isOfFolder } of await dumpFiles(dumps, (file) =>
    /^(?:nft|addresses|ip6?tables-legacy-save)\.txt$/.test(file),
  )) {
    const text = await dumpText(path, name, input);
    const isOthers = (tool: string | undefined) => isOfFolder && !kinds.some((kind) => kind === tool);
    const own = dumpsIn(text, name, readers, (error) => isOthers(error.tool));
    const [tool] = own.map(toolOf);
    // In a folder, files of other tools than the mode's are not a mistake.
    if (isOthers(tool)) continue;
    const inventory = inventoryIn(own, name, { family, table });
    const { kind, missing } = inventory;
    if (missing !== undefined) warn(`${name}: ${missing}`);
    if (!kinds.includes(kind))
      throw new UsageError(`${name} is of ${kind}, and mode ${mode} writes ${kinds.join(", ")}: is --mode right?`);
    if (kind === "iptables-save") saved.push(...own);
    const known = found.get(kind);
    found.set(kind, known === undefined ? inventory : merged(kind, [known, inventory]));
  }
  // Virtual servers are not asked for: only what the dumps tell about is compared.
  for (const gap of gapsIn([...saved, { kind: "chains", tool: "ipvsadm", chains: () => [] }])) warn(gap);
  if (found.size === 0)
    throw new UsageError(`no dump is of ${kinds.join(", ")}, which mode ${mode} writes: is --mode right?`);
  return found;
}

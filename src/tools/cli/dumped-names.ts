/** `explain NAME --dump FILE`: what rules alone say about a name, from the names and comments in them. */

import type { Holder } from "../../contract/inspect/dumps/inventory.ts";
import { gapsIn, iptablesHint } from "../../trace/dump/gaps.ts";
import type { Dump } from "../../trace/dump/recognise.ts";
import { ownerInComment } from "../explain/diff-dumps.ts";
import { safe } from "../explain/safe-text.ts";
import { dumpFiles, dumpText, inventoryIn } from "./dump-folder.ts";
import { UsageError } from "./output.ts";
import { dumpReaders, dumpsIn } from "./trace-rules.ts";

/** People would not read more lines. */
const SHOWN_LINES = 40;
/** `shop/web/tcp/http` in the name of a chain of nftables mode. */
const CHAIN = /-([a-z0-9-]+\/[a-z0-9-]+)\/(?:tcp|udp|sctp)\/([a-z0-9-]*)/;

/** @returns the answer. @throws UsageError if nothing has the name or a dump cannot be read */
export async function namedInDumps(
  what: string,
  paths: readonly string[],
  input: NodeJS.ReadableStream,
  warn: (message: string) => void,
): Promise<string> {
  const holders: Holder[] = [];
  const dumps: Dump[] = [];
  const readers = await dumpReaders();
  for (const { path, name } of await dumpFiles(paths, (file) =>
    /^(?:addresses|ip6?tables-legacy-save)\.txt$/.test(file),
  )) {
    const text = await dumpText(path, name, input);
    const own = dumpsIn(text, name, readers);
    holders.push(...inventoryIn(own, name, { family: "IPv4", table: undefined }).holders.values());
    dumps.push(...own);
  }
  for (const note of [...gapsIn(dumps), ...iptablesHint(dumps)]) warn(note);
  const wanted = what.replace(/^(?:svc|services?)\//, "");
  const isService = /^[a-z0-9-]+\/[a-z0-9-]+(?::[a-z0-9-]+)?$/.test(wanted);
  const found = holders.flatMap((holder) => {
    const isOwn = holder.name === wanted;
    const isFound = (line: string) => (isService ? isOwnedBy(line, wanted) : hasEnd(line, wanted));
    const lines = holder.lines.filter((line) => isOwn || isFound(line));
    const isNamed = isOwn || (isService && isOwnedBy(holder.name, wanted));
    return lines.length > 0 || isNamed ? [{ holder, lines }] : [];
  });
  if (found.length === 0) throw new UsageError(`nothing in the dumps is named ${what} or is for it`);
  const owners = new Set(
    found.flatMap(({ holder, lines }) => [holder.name, ...lines].flatMap((line) => ownerIn(line) ?? [])),
  );
  const whose =
    owners.size === 0
      ? "no comment says whose it is"
      : `by names and comments, it is for ${[...owners].sort().join(", ")}`;
  const lines = found.flatMap(({ holder: { kind, name, place }, lines: own }) => [
    `${kind} ${name} in ${place}`,
    ...own.map((line) => `  ${line}`),
  ]);
  const more = lines.length > SHOWN_LINES ? [`… and ${lines.length - SHOWN_LINES} lines more`] : [];
  return safe([`${what}: ${whose}.`, "", ...lines.slice(0, SHOWN_LINES), ...more].map((line) => `${line}\n`).join(""));
}

function ownerIn(line: string): string | undefined {
  const [, service, port] = CHAIN.exec(line) ?? [];
  return ownerInComment(line) ?? (service === undefined ? undefined : `${service}${port === "" ? "" : `:${port}`}`);
}

/** @param service `namespace/name`, or with a port. */
function isOwnedBy(line: string, service: string): boolean {
  const owner = ownerIn(line);
  return owner === service || owner?.startsWith(`${service}:`) === true;
}

/** `10.96.0.10:80/tcp`, also where a tool prints address and port apart, as `10.96.0.10 . tcp . 80` or `-d 10.96.0.10/32 --dport 80`. */
function hasEnd(line: string, word: string): boolean {
  if (hasWord(line, word)) return true;
  const [, bracketed, bare, port = ""] = /^(?:\[([^\]]+)\]|([\d.]+)):(\d+)(?:\/\w+)?$/.exec(word) ?? [];
  const address = bracketed ?? bare;
  return (
    address !== undefined &&
    hasWord(line, address) &&
    (hasWord(line, port) || !/\bd?port\b|\. (?:tcp|udp|sctp) \./.test(line))
  );
}

const hasWord = (line: string, word: string): boolean =>
  line.split(/[\s",{}]+/).some((one) => one === word || [":", "/"].some((end) => one.startsWith(word + end)));

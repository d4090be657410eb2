/** Whether a text is all that iptables-save printed: what is cut, mixed or of another tool must not be passed over. */
import { AROUND } from "../../nftables/listing/listing.ts";

const CHAIN = /^:(\S+) (?:-|[A-Z]+)(?: \[\d+:\d+\])?$/;
/** No quote is open at its end, and no option is without its value. */
const RULE = /^(?:\[\d+:\d+\] )?-A (\S+)(?: +(?:"(?:[^"\\]|\\.)*"|[^"\s]+))*(?<! -[A-Za-z-]?)$/;
/** The tool says where each table begins and ends; the last line may be cut. */
const REMARK = /^# ([GC])(?:enerated by |ompleted on |\w*$)/;
const MISSING = "something may be missing there";

/** The first line that iptables-save does not print in its place, in words; none if the text is whole. */
export function savedGaps(saved: string): readonly string[] {
  const lines = saved.split("\n");
  let before: "a table" | "its remark" | "nothing" = "nothing";
  let chains: Set<string> | undefined;
  for (const [index, line] of lines.entries()) {
    const [, chain] = CHAIN.exec(line) ?? [];
    const [, remark] = REMARK.exec(line) ?? [];
    if (remark === "G" && before !== "a table" && chains === undefined) before = "a table";
    else if (remark === "C" && before === "its remark") before = "nothing";
    else if (remark === undefined && (line === "" || line.startsWith("#"))) continue;
    else if (chains === undefined && /^\*\S+$/.test(line)) [chains, before] = [new Set(), "nothing"];
    else if (remark === undefined && chains === undefined && AROUND.test(line)) continue;
    else if (line === "COMMIT" && chains !== undefined) [chains, before] = [undefined, "its remark"];
    else if (chain !== undefined && chains?.has(chain) === false) chains.add(chain);
    else if (chains?.has(RULE.exec(line)?.[1] ?? "") !== true)
      return [
        `line ${index + 1}: ${JSON.stringify(line.slice(0, 60))} is not what iptables-save prints, and ${MISSING}`,
      ];
  }
  return before === "a table" ? [`line ${lines.length}: the output of iptables-save does not end, and ${MISSING}`] : [];
}

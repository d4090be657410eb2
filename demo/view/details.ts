/** Everything about one service port, in whole sentences. */

import { joinHostPort } from "../../src/net/ip.ts";
import type { Block } from "../results.ts";
import { positions } from "../targets.ts";
import { type Line, segment } from "./styled-line.ts";
import { columnTitles, shareLine } from "./table.ts";
import { wrapLine } from "./wrap.ts";

/** The details of a block, for a terminal of this width. */
export function detailLines(block: Block, columns: number): Line[] {
  const lines: Line[] = [
    [segment(block.title, "bold")],
    [segment(`  ${block.traits.join(" · ")}`, "dim")],
    ...(block.note === "" ? [] : [[segment(`  ${block.note}`, "yellow")]]),
    [],
    ...[...block.pods].map(([family, pods]) => shareLine(block, family, pods)),
  ];
  for (const { target, cells } of block.rows) {
    lines.push([], [segment(`${target.kind} `, "bold"), segment(joinHostPort(target.address, target.number), "cyan")]);
    for (const position of positions) {
      const cell = cells.get(position);
      if (cell === undefined) continue;
      const { judgement, requests, expected } = cell;
      const mark =
        judgement === undefined
          ? segment("… ", "dim")
          : judgement.isRight
            ? segment("✓ ", "green")
            : segment("✗ ", "red", "bold");
      const found =
        judgement === undefined
          ? "being asked"
          : judgement.isRight
            ? `${expected}: ${judgement.text} in ${requests} requests`
            : judgement.detail;
      lines.push([segment("  "), mark, segment(`${columnTitles[position]}: `, "dim"), segment(found)]);
    }
  }
  return lines.flatMap((line) => wrapLine(line, columns, 6));
}

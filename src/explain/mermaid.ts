/** A picture as mermaid source. Pure. */
import type { Picture } from "./picture.ts";

const UNSAFE = /[^\p{L}\p{N} .,:/()[\]%*_-]/gu;

/** Text in a label: what mermaid or a browser could read as something else is written as its number. */
function labelText(text: string): string {
  return text.replaceAll(UNSAFE, (character) => `#${character.codePointAt(0) ?? 0};`);
}

/** One flowchart for all pictures. */
export function mermaidText(pictures: readonly Picture[]): string {
  const lines = ["flowchart LR"];
  for (const [index, { title, boxes, arrows }] of pictures.entries()) {
    lines.push(`  subgraph p${index} ["${labelText(title)}"]`);
    for (const { id, title: name, note, isUsed } of boxes) {
      const text = note === "" ? labelText(name) : `${labelText(name)}<br>${labelText(note)}`;
      lines.push(`    ${id}["${text}"]${isUsed ? "" : ":::unused"}`);
    }
    for (const { from, to, label } of arrows) {
      lines.push(`    ${from} -->${label === "" ? "" : `|"${labelText(label)}"|`} ${to}`);
    }
    lines.push("  end");
  }
  lines.push("  classDef unused stroke-dasharray: 4 4");
  return `${lines.join("\n")}\n`;
}

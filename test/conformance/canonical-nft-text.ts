/**
 * Makes two listings of `nft list ruleset` comparable where nft's own order is not defined: objects of a table come in any
 * order, and so do elements of a set. Everything else counts, to the letter.
 */

/** @returns the listing, its blocks and elements sorted, one element per line. */
export function canonicalNftText(listing: string): string {
  const tables = blocks(listing, 0).map((table) => {
    const [head = "", ...body] = table.split("\n");
    const inner = blocks(body.slice(0, -1).join("\n"), 1);
    return [head, ...inner.map(withSortedElements).sort(), "}"].join("\n");
  });
  return `${tables.sort().join("\n")}\n`;
}

/** Splits text into what begins at this depth of indentation; blank lines between do not count. */
function blocks(text: string, depth: number): string[] {
  const found: string[] = [];
  const indent = "\t".repeat(depth);
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const isInside = line.startsWith(`${indent}\t`) || line === `${indent}}`;
    const last = found.length - 1;
    if (isInside && last >= 0) found[last] += `\n${line}`;
    else found.push(line);
  }
  return found;
}

/** Elements wrap over lines: `elements = { a, b,\n\t\t\t     c }`. */
function withSortedElements(block: string): string {
  return block.replace(/\t\telements = \{ ([\s\S]*?) \}(?=\n)/, (_, list: string) => {
    const elements = list.split(/,\s+/).sort();
    return `\t\telements = {\n${elements.map((element) => `\t\t\t${element.trim()}`).join("\n")}\n\t\t}`;
  });
}

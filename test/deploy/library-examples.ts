/** The runnable examples of the library: code blocks in docs/library.md and in the TSDoc of src/lib. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { CHECKOUT } from "../docs/markdown.ts";

export interface Example {
  /** `library-2`: usable as the name of a file. */
  readonly name: string;
  readonly source: string;
  /** What it prints; undefined where the page does not say. */
  readonly output: string | undefined;
  readonly needsRoot: boolean;
}

const BLOCK = /^```ts( needs-root)?\n(.*?)^```\n(?:\s*```text\n(.*?)^```\n)?/gms;

function examplesIn(name: string, markdown: string): readonly Example[] {
  return [...markdown.matchAll(BLOCK)].map(([, root, source = "", output], index) => ({
    name: `${name}-${index + 1}`,
    source,
    output,
    needsRoot: root !== undefined,
  }));
}

/** Everything that the page and the comments show. */
export function libraryExamples(): readonly Example[] {
  const page = examplesIn("library", readFileSync(join(CHECKOUT, "docs/library.md"), "utf8"));
  const comments = globSync("src/lib/**/*.ts", { cwd: CHECKOUT })
    .sort()
    .flatMap((file) => {
      const text = readFileSync(join(CHECKOUT, file), "utf8").replaceAll(/^ \* ?/gm, "");
      return examplesIn(file.replace("src/lib/", "").replaceAll(/[/.]/g, "-"), text);
    });
  return [...page, ...comments];
}

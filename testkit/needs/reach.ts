/** What a source file reaches: the modules that it imports, and those that it names as a thread or a process, over others. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** A path in a source. */
const PATH = /"(\.?[\w./-]+\.ts)"/g;

/** The sources of a checkout; each is read once. All paths are relative to it. */
export class Sources {
  readonly #root: string;
  readonly #named = new Map<string, readonly string[]>();

  constructor(root: string) {
    this.#root = root;
  }

  /** The sources that one names. */
  namedIn(file: string): readonly string[] {
    const known = this.#named.get(file);
    if (known !== undefined) return known;
    const paths = [...readFileSync(join(this.#root, file), "utf8").matchAll(PATH)];
    const found = paths
      .map(([, path = ""]) => join(dirname(file), path))
      .filter((path) => existsSync(join(this.#root, path)));
    this.#named.set(file, found);
    return found;
  }

  /** The file itself and what it reaches, each with how many others lie between; nearest first. */
  reachedFrom(file: string): ReadonlyMap<string, number> {
    const far = new Map([[file, 0]]);
    // Grows during the iteration.
    for (const [one, steps] of far) for (const next of this.namedIn(one)) if (!far.has(next)) far.set(next, steps + 1);
    return far;
  }
}

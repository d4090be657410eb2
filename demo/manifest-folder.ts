/** Reads the demo's manifests from a folder or file, keeping the last good version of what is broken just now. */
import { readdir, readFile, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import { parseAllDocuments } from "yaml";
import { type DemoObject, demoObjectKey, parseDemoObject } from "./cluster-view.ts";

const EXTENSIONS = [".yaml", ".yml", ".json"];

interface ReadResult {
  readonly objects: ReadonlyMap<string, DemoObject>;
  /** One line for each broken document, naming file and document. */
  readonly problems: readonly string[];
}

/** Remembers the last good objects of each file. */
export class ManifestFolder {
  readonly #path: string;
  #texts: ReadonlyMap<string, { readonly text: string; readonly result: ReadResult }> = new Map();
  #lastGood = new Map<string, ReadonlyMap<string, DemoObject>>();

  /** @param path a folder (read recursively) or one file. */
  constructor(path: string) {
    this.#path = path;
  }

  /** Reads everything. Rejects only when the path itself cannot be read. */
  async read(): Promise<{ readonly objects: readonly DemoObject[]; readonly problems: readonly string[] }> {
    const files = await this.#files();
    const lastGood = new Map<string, ReadonlyMap<string, DemoObject>>();
    const objects = new Map<string, DemoObject>();
    const problems: string[] = [];
    const texts = new Map<string, { readonly text: string; readonly result: ReadResult }>();
    for (const file of files) {
      const text = await readFile(file, "utf8").catch(() => undefined);
      // Gone since the listing: an editor replaces files.
      if (text === undefined) continue;
      const known = this.#texts.get(file);
      // A dump of a cluster takes seconds to parse, and is read in every pass.
      const result = known?.text === text ? known.result : this.#parse(file, text);
      texts.set(file, { text, result });
      lastGood.set(file, result.objects);
      for (const [key, object] of result.objects) objects.set(key, object);
      problems.push(...result.problems);
    }
    this.#lastGood = lastGood;
    this.#texts = texts;
    return { objects: [...objects.values()], problems };
  }

  async #files(): Promise<string[]> {
    if (!(await stat(this.#path)).isDirectory()) return [this.#path];
    const names = await readdir(this.#path, { recursive: true });
    const visible = names.filter((name) => !name.split("/").some((part) => part.startsWith(".")));
    return visible
      .filter((name) => EXTENSIONS.some((end) => name.endsWith(end)))
      .sort()
      .map((name) => join(this.#path, name));
  }

  #parse(file: string, text: string): ReadResult {
    const objects = new Map<string, DemoObject>();
    const problems: string[] = [];
    const title = relative(process.cwd(), file);
    const documents = parseAllDocuments(text);
    for (const [index, document] of [...documents].entries()) {
      const [error] = document.errors;
      if (error !== undefined) {
        problems.push(`${title} document ${index + 1}: ${error.message.split("\n")[0]}`);
        continue;
      }
      for (const item of itemsOf(document.toJS())) {
        const parsed = parseDemoObject(item);
        if (parsed?.ok === true) objects.set(demoObjectKey(parsed.object), parsed.object);
        else if (parsed !== undefined) problems.push(`${title} document ${index + 1}: ${parsed.problem}`);
      }
    }
    if (problems.length > 0) {
      for (const [key, object] of this.#lastGood.get(file) ?? []) if (!objects.has(key)) objects.set(key, object);
    }
    return { objects, problems };
  }
}

/** A `List` has its objects in `items`. */
function itemsOf(document: unknown): readonly unknown[] {
  if (typeof document !== "object" || document === null) return [];
  const isList = "kind" in document && typeof document.kind === "string" && document.kind.endsWith("List");
  return isList && "items" in document && Array.isArray(document.items) ? document.items : [document];
}

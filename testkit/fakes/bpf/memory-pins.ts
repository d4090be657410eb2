/** {@link BpfPins} in memory: names of what outlives a process. */
import type { BpfLink, BpfMap, BpfPins, BpfProgram } from "../../../src/kernel/bpf/bpf.ts";
import { BpfError } from "../../../src/kernel/bpf/bpf-error.ts";
import type { Hook } from "../../../src/kernel/bpf/hooks.ts";
import type { MapDefinition } from "../../../src/kernel/bpf/map-definition.ts";

const FOLDER = "folder";

/** What a name stands for. */
export interface Pinnable {
  readonly kind: "map" | "program" | "link";
  /** A name was added or removed. */
  onNamed(isNamed: boolean): void;
}

/** The names, for as long as the machine runs. */
export class PinnedNames {
  readonly #names = new Map<string, Pinnable | typeof FOLDER>();

  /** All of them, sorted; folders end with a slash. */
  get paths(): readonly string[] {
    return [...this.#names].map(([path, what]) => (what === FOLDER ? `${path}/` : path)).sort();
  }

  list(folder: string): readonly string[] | undefined {
    const found = this.#names.get(folder);
    if (found === undefined) return undefined;
    if (found !== FOLDER) throw failure("ENOTDIR", folder);
    return this.#below(folder).filter((name) => !name.includes("/"));
  }

  makeFolder(path: string): void {
    const parts = path.split("/");
    for (let count = 2; count <= parts.length; count++) {
      const folder = parts.slice(0, count).join("/");
      if ((this.#names.get(folder) ?? FOLDER) !== FOLDER) throw failure("ENOTDIR", path);
      this.#names.set(folder, FOLDER);
    }
  }

  pin(what: Pinnable, path: string): void {
    if (this.#names.has(path)) throw failure("EEXIST", path);
    if (this.#names.get(path.slice(0, path.lastIndexOf("/"))) !== FOLDER) throw failure("ENOENT", path);
    if (path.slice(path.lastIndexOf("/")).includes(".")) throw failure("EPERM", path);
    this.#names.set(path, what);
    what.onNamed(true);
  }

  move(from: string, to: string): void {
    const what = this.get(from);
    if (what === undefined) throw failure("ENOENT", from);
    this.remove(to);
    this.#names.delete(from);
    this.#names.set(to, what);
  }

  remove(path: string): boolean {
    const what = this.#names.get(path);
    if (what === undefined) return false;
    if (what === FOLDER && this.#below(path).length > 0) throw failure("ENOTEMPTY", path);
    this.#names.delete(path);
    if (what !== FOLDER) what.onNamed(false);
    return true;
  }

  get(path: string): Pinnable | undefined {
    const found = this.#names.get(path);
    if (found === FOLDER) throw failure("EACCES", path);
    return found;
  }

  #below(folder: string): readonly string[] {
    return [...this.#names.keys()]
      .filter((path) => path.startsWith(`${folder}/`))
      .map((path) => path.slice(folder.length + 1));
  }
}

/** How one process opens what has a name. */
export interface PinOpeners {
  pinnable(what: BpfMap | BpfProgram | BpfLink): Pinnable;
  map(found: Pinnable, define: (maxEntries: number) => MapDefinition, path: string): BpfMap;
  link(found: Pinnable, hook: Hook | undefined, path: string): BpfLink;
}

export function memoryPins(names: PinnedNames, open: PinOpeners): BpfPins {
  const find = (path: string, kind: Pinnable["kind"]): Pinnable | undefined => {
    const found = names.get(path);
    if (found === undefined || found.kind === kind) return found;
    throw new BpfError("invalid", `bpf: ${path} is not the expected object: it is no ${kind} but ${found.kind}`);
  };
  return {
    list: (folder) => names.list(folder),
    makeFolder: (path) => names.makeFolder(path),
    pin: (what, path) => names.pin(open.pinnable(what), path),
    move: (from, to) => names.move(from, to),
    remove: (path) => names.remove(path),
    map(path, define) {
      const found = find(path, "map");
      return found && open.map(found, define, path);
    },
    link(path, hook) {
      const found = find(path, "link");
      return found && open.link(found, hook, path);
    },
  };
}

const failure = (code: `E${string}`, path: string): BpfError => new BpfError(code, `bpf: ${path}: ${code}`);

/**
 * Pins of one family's maps and links in a bpf file system: they keep the socket path in force while this process is down, and
 * the next process continues with them (reference ebpf-operation.md §6.2). After each step, the next start can use what it finds:
 * it accepts a set of maps only as a whole.
 */
import type { BpfLink, BpfMap, BpfPins } from "../../kernel/bpf/bpf.ts";
import type { Hook } from "../../kernel/bpf/hooks.ts";
import type { MapDefinition } from "../../kernel/bpf/map-definition.ts";
import { FolderInUse } from "../../kernel/folder-lock.ts";
import type { StaleSocket, UdpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import { attempt } from "../../logging/attempt.ts";
import type { IpFamily } from "../../net/ip.ts";
import { Connections } from "./connections.ts";
import { closeAll, type FoundMaps, type Opened } from "./open-maps.ts";
import {
  type BalancerCapacity,
  type BalancerMaps,
  countingMaps,
  leadingMaps,
  MAPS_VERSION,
  memoryMaps,
} from "./socket-balancer/maps.ts";

/** Folders of maps, of any version. Earlier processes kept programs there, too. */
const VERSION_FOLDER = /^v\d+$/;
const OWN_VERSION = `v${MAPS_VERSION}`;
const LINKS = "links";
/** The prefix of our programs' names, and so of the links' names. */
export const OWN_PREFIX = "kpts_";

type Pinned = BpfMap | BpfLink;

export class SocketPins {
  readonly #pins: BpfPins;
  readonly #family: IpFamily;
  readonly #folder: string;
  /** Claims the folder for this process. @throws FolderInUse */
  readonly hold: () => void;
  /** By path: what this process has pinned there. */
  readonly #names = new Map<string, Pinned>();
  #problem: unknown;

  /** @param root folder of this network namespace on a bpf file system; need not exist. */
  constructor(pins: BpfPins, root: string, family: IpFamily, hold = () => {}) {
    this.hold = hold;
    this.#pins = pins;
    this.#family = family;
    this.#folder = `${root}/${family}`;
  }

  /** Why pinning last failed; undefined if it has succeeded since. */
  get problem(): unknown {
    return this.#problem;
  }

  /** Maps of an earlier process. Incomplete sets, and maps that this version defines differently, count as missing. */
  findMaps(): FoundMaps {
    const family = this.#family;
    return {
      leading: this.#findAll((entries) => leadingMaps(family, ofSize(entries))),
      memory: this.#findAll((entries) => memoryMaps(family, entries)),
      counting: this.findCounts(),
    };
  }

  /** The counting part of {@link findMaps}. */
  findCounts(): FoundMaps["counting"] {
    return this.#findAll((entries) => countingMaps(this.#family, entries));
  }

  /** The link of one of our programs, wherever it is attached. */
  findLink(name: string, hook: Hook): BpfLink | undefined {
    const path = this.#pathOf(LINKS, name);
    // One that cannot be opened counts as missing, and will be replaced.
    return attempt(() => this.#pins.link(path, hook));
  }

  /** Ids of the pinned links, of any process. */
  linkIds(): readonly number[] {
    return this.#links(({ id }) => id);
  }

  /** Whether no pinned link is at a cgroup: it is gone, or another program has detached them. */
  areDetached(): boolean {
    return this.#links(({ cgroupId }) => cgroupId).every((id) => id === 0n);
  }

  #links<T>(of: (link: BpfLink) => T): readonly T[] {
    return (this.#pins.list(this.#pathOf(LINKS)) ?? []).flatMap((name) => {
      const link = attempt(() => this.#pins.link(this.#pathOf(LINKS, name)));
      if (link === undefined) return [];
      const found = of(link);
      link.release();
      return [found];
    });
  }

  /** Connected UDP sockets that programs of another version redirected: their records end with that version's maps. */
  formerSockets(): readonly StaleSocket[] {
    const folders = (this.#pins.list(this.#folder) ?? []).filter(
      (name) => VERSION_FOLDER.test(name) && name !== OWN_VERSION,
    );
    return folders.flatMap((folder) => {
      const path = this.#pathOf(folder, memoryMaps(this.#family).connected.name);
      const connected = attempt(() => this.#pins.map(path, (entries) => memoryMaps(this.#family, entries).connected));
      const all = connected === undefined ? [] : new Connections(this.#family, () => ({ connected })).all();
      connected?.close();
      return all;
    });
  }

  /** Pins everything that is not pinned yet and removes our other pins. A failure sets {@link problem}. */
  keep(
    { backends, ...maps }: Opened<BalancerMaps>,
    programs: readonly { readonly name: string; readonly link: BpfLink | undefined }[],
  ): void {
    const [own, ofLinks] = [this.#pathOf(OWN_VERSION), this.#pathOf(LINKS)];
    // Backends first: frontends that speak of lists which these do not have do no harm.
    const all: readonly (readonly [string, Pinned])[] = [
      ...[backends, ...Object.values(maps)].map((map) => [`${own}/${map.definition.name}`, map] as const),
      ...programs.flatMap(({ name, link }) => (link === undefined ? [] : [[`${ofLinks}/${name}`, link] as const])),
    ];
    try {
      // Another program may have removed the folder, and another process may have made it again for itself.
      this.hold();
      for (const folder of [own, ofLinks]) if (this.#pins.list(folder) === undefined) this.#pins.makeFolder(folder);
      this.#forgetMissing([own, ofLinks]);
      for (const [path, what] of all) this.#keep(path, what);
      this.#removeAll(new Set(all.map(([path]) => path)));
      this.#problem = undefined;
    } catch (error) {
      this.#problem = error;
      // The names are the other process's from now on.
      if (error instanceof FolderInUse) this.#names.clear();
      // The next start could not use half of it.
      else attempt(() => this.#removeAll());
    }
  }

  /** Detaches pinned links, even those that a process holds open, and removes all pins. @throws BpfError if something is left. */
  end(): void {
    for (const name of this.#pins.list(this.#pathOf(LINKS)) ?? []) {
      if (name.startsWith(OWN_PREFIX)) attempt(() => this.#pins.link(this.#pathOf(LINKS, name))?.close());
    }
    this.#removeAll();
  }

  /** As {@link end}, and tells redirected connected UDP sockets, because nothing else will when their endpoint goes. */
  async endWithSockets(disconnector: Pick<UdpDisconnector, "disconnect">): Promise<void> {
    const found = this.findMaps();
    const { memory } = found;
    const own = memory === undefined ? [] : new Connections(this.#family, () => memory).all();
    const led = [...own, ...this.formerSockets()];
    for (const maps of Object.values(found)) closeAll(maps ?? {});
    try {
      this.end();
    } finally {
      if (led.length > 0) await disconnector.disconnect(led);
    }
  }

  /**
   * Removes all our pins but these, of any version; what has no other reference ends. While pins are kept, other names
   * in this version's folder belong to other programs. @throws BpfError if something is left.
   */
  #removeAll(kept: ReadonlySet<string> = new Set()): void {
    const root = this.#folder;
    for (const name of this.#pins.list(root) ?? []) {
      if (name !== LINKS && !VERSION_FOLDER.test(name)) continue;
      const isShared = name === LINKS || (name === OWN_VERSION && kept.size > 0);
      const folder = this.#pathOf(name);
      for (const pinned of this.#pins.list(folder) ?? []) {
        const path = `${folder}/${pinned}`;
        if (!kept.has(path) && (!isShared || pinned.startsWith(OWN_PREFIX))) this.#remove(path);
      }
      this.#removeFolder(folder);
    }
    this.#removeFolder(root);
  }

  /** There is no moment without a map or link of this name. */
  #keep(path: string, what: Pinned): void {
    if (this.#names.get(path) === what) return;
    const another = `${path}_new`;
    this.#pins.remove(another);
    this.#pins.pin(what, another);
    this.#pins.move(another, path);
    this.#names.set(path, what);
  }

  /** Another program may have removed pins. */
  #forgetMissing(folders: readonly string[]): void {
    const there = new Set(
      folders.flatMap((folder) => (this.#pins.list(folder) ?? []).map((name) => `${folder}/${name}`)),
    );
    for (const path of this.#names.keys()) if (!there.has(path)) this.#names.delete(path);
  }

  /** All maps, or undefined. @param define the required definitions, given the number of elements. */
  #findAll<Definitions extends { readonly [Name in keyof Definitions]: MapDefinition }>(
    define: (entries: number) => Definitions,
  ): Opened<Definitions> | undefined {
    const found = new Map<keyof Definitions, BpfMap>();
    const keys = Object.keys(define(1)) as (keyof Definitions)[]; // the object's own keys
    for (const key of keys) {
      const path = this.#pathOf(OWN_VERSION, define(1)[key].name);
      const map = attempt(() => this.#pins.map(path, (entries) => define(entries)[key]));
      if (map === undefined) break;
      found.set(key, map);
    }
    const opened = Object.fromEntries(found) as Opened<Definitions>; // one map per key
    if (found.size === keys.length) return opened;
    closeAll(opened);
    return undefined;
  }

  /** The folder stays if other programs' pins are in it. */
  #removeFolder(path: string): void {
    if ((this.#pins.list(path) ?? [path]).length === 0) this.#pins.remove(path);
  }

  #remove(path: string): void {
    this.#names.delete(path);
    this.#pins.remove(path);
  }

  #pathOf(...parts: readonly string[]): string {
    return [this.#folder, ...parts].join("/");
  }
}

const ofSize = (maxEntries: number): BalancerCapacity => ({
  frontends: maxEntries,
  slots: maxEntries,
  backends: maxEntries,
});

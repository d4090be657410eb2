/**
 * Names of one family's maps, programs and links in a bpf file system: with them connections are decided at the socket while this
 * process is away, and the next one goes on with what is there (reference ebpf-operation.md §6.2). Each step leaves what the next
 * start understands: a set of maps counts only when it is whole, a program only for the link that runs it.
 */
import type { BpfLink, BpfMap, BpfPins, BpfProgram } from "../../kernel/bpf/bpf.ts";
import type { Hook } from "../../kernel/bpf/hooks.ts";
import type { MapDefinition } from "../../kernel/bpf/map-definition.ts";
import {
  type BalancerCapacity,
  type BalancerMaps,
  countingMaps,
  leadingMaps,
  MAPS_VERSION,
  memoryMaps,
} from "../../kernel/bpf/socket-balancer/maps.ts";
import type { UdpDisconnector } from "../../kernel/sock-diag/disconnect-udp.ts";
import { attempt } from "../../logging/attempt.ts";
import type { IpFamily } from "../../net/ip.ts";
import { Connections } from "./connections.ts";
import { closeAll, type FoundMaps, type Opened } from "./open-maps.ts";

/** What of a program is to be found by the next process. */
interface KeptProgram {
  readonly name: string;
  readonly program: BpfProgram;
  readonly link: BpfLink | undefined;
}

/** Folders of maps and programs, of any version. */
const VERSION_FOLDER = /^v\d+$/;
const OWN_VERSION = `v${MAPS_VERSION}`;
const LINKS = "links";
/** Begins the names of our programs, so those of links. */
export const OWN_PREFIX = "kpts_";

type Pinned = BpfMap | BpfProgram | BpfLink;

export class SocketPins {
  readonly #pins: BpfPins;
  readonly #family: IpFamily;
  readonly #folder: string;
  /** Takes the folder for this process. @throws FolderInUse */
  readonly hold: () => void;
  /** What has each name, as far as it is known. */
  readonly #names = new Map<string, Pinned>();
  #problem: unknown;

  /** @param root folder of this network namespace, on a bpf file system; it need not be there. */
  constructor(pins: BpfPins, root: string, family: IpFamily, hold = () => {}) {
    this.hold = hold;
    this.#pins = pins;
    this.#family = family;
    this.#folder = `${root}/${family}`;
  }

  /** Why the names could not be kept, since the last time that they could. */
  get problem(): unknown {
    return this.#problem;
  }

  /** Maps of an earlier process. What is not whole, or not as this version makes it, is not found. */
  findMaps(): FoundMaps {
    const family = this.#family;
    return {
      leading: this.#findAll((entries) => leadingMaps(family, ofSize(entries))),
      memory: this.#findAll((entries) => memoryMaps(family, entries)),
      counting: this.findCounts(),
    };
  }

  /** Of {@link findMaps}, what is counted. */
  findCounts(): FoundMaps["counting"] {
    return this.#findAll((entries) => countingMaps(this.#family, entries));
  }

  /** The link of a program of ours, wherever it is attached, and the program of this version that it had last. */
  findLink(name: string, hook: Hook): { readonly link: BpfLink; readonly program: BpfProgram | undefined } | undefined {
    const [linkPath, programPath] = [this.#pathOf(LINKS, name), this.#pathOf(OWN_VERSION, name)];
    const link = this.#find(linkPath, () => this.#pins.link(linkPath, hook));
    return link && { link, program: this.#find(programPath, () => this.#pins.program(programPath)) };
  }

  /** Ids of the links that have names here, whichever process has given them. */
  linkIds(): readonly number[] {
    return (this.#pins.list(this.#pathOf(LINKS)) ?? []).flatMap((name) => {
      const link = attempt(() => this.#pins.link(this.#pathOf(LINKS, name)));
      const id = link?.id;
      link?.release();
      return id ?? [];
    });
  }

  /** Gives all of it its names, where it has not got them, and takes away others of ours. What fails is {@link problem}. */
  keep(maps: Opened<BalancerMaps>, programs: readonly KeptProgram[]): void {
    const [own, ofLinks] = [this.#pathOf(OWN_VERSION), this.#pathOf(LINKS)];
    const all = Object.values<BpfMap>(maps);
    const those = (definitions: object): [string, Pinned][] => {
      const names = new Set(Object.values<MapDefinition>({ ...definitions }).map(({ name }) => name));
      return all
        .filter(({ definition }) => names.has(definition.name))
        .map((map) => [`${own}/${map.definition.name}`, map]);
    };
    // Those that belong together: never old ones beside new ones.
    const groups: (readonly [string, Pinned])[][] = [
      those(leadingMaps(this.#family, ofSize(1))),
      those(memoryMaps(this.#family)),
      those(countingMaps(this.#family, 1)),
      ...programs.map(({ name, program }) => [[`${own}/${name}`, program] as const]),
      ...programs.flatMap(({ name, link }) => (link === undefined ? [] : [[[`${ofLinks}/${name}`, link] as const]])),
    ];
    try {
      for (const folder of [own, ofLinks]) if (this.#pins.list(folder) === undefined) this.#pins.makeFolder(folder);
      this.#forgetMissing([own, ofLinks]);
      for (const group of groups) this.#keep(group);
      this.#removeAll(new Set(groups.flat().map(([path]) => path)));
      this.#problem = undefined;
    } catch (error) {
      this.#problem = error;
      // Half of it would be of no use to the next start.
      attempt(() => this.#removeAll());
    }
  }

  /** Ends the links that have names, also those that a process holds open, and takes away the names. @throws BpfError when something is left. */
  end(): void {
    for (const name of this.#pins.list(this.#pathOf(LINKS)) ?? []) {
      if (name.startsWith(OWN_PREFIX)) attempt(() => this.#pins.link(this.#pathOf(LINKS, name))?.close());
    }
    this.#removeAll();
  }

  /** As {@link end}; connected UDP sockets that were led are told, because nothing else will tell them when their endpoint goes. */
  async endWithSockets(disconnector: Pick<UdpDisconnector, "disconnect">): Promise<void> {
    const found = this.findMaps();
    const { memory } = found;
    const led = memory === undefined ? [] : new Connections(this.#family, () => memory).all();
    for (const maps of Object.values(found)) closeAll(maps ?? {});
    this.#names.clear();
    try {
      this.end();
    } finally {
      if (led.length > 0) await disconnector.disconnect(led);
    }
  }

  /**
   * Takes away every name of ours but these, of any version. What nothing holds open ends. In the folder of this version, what is none of
   * them and has no name of ours belongs to others while something is kept. @throws BpfError when something is left.
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

  #keep(group: readonly (readonly [string, Pinned])[]): void {
    if (group.every(([path, what]) => this.#names.get(path) === what)) return;
    for (const [path] of group) this.#remove(path);
    for (const [path, what] of group) {
      this.#pins.pin(what, path);
      this.#names.set(path, what);
    }
  }

  /** Another program may have taken names away. */
  #forgetMissing(folders: readonly string[]): void {
    const there = new Set(
      folders.flatMap((folder) => (this.#pins.list(folder) ?? []).map((name) => `${folder}/${name}`)),
    );
    for (const path of this.#names.keys()) if (!there.has(path)) this.#names.delete(path);
  }

  /** All, or undefined. @param define what they must be, told how many elements they have room for. */
  #findAll<Definitions extends { readonly [Name in keyof Definitions]: MapDefinition }>(
    define: (entries: number) => Definitions,
  ): Opened<Definitions> | undefined {
    const found = new Map<keyof Definitions, BpfMap>();
    const keys = Object.keys(define(1)) as (keyof Definitions)[]; // its own keys
    const pathOf = (key: keyof Definitions): string => this.#pathOf(OWN_VERSION, define(1)[key].name);
    for (const key of keys) {
      const path = pathOf(key);
      const map = this.#find(path, () => this.#pins.map(path, (entries) => define(entries)[key]));
      if (map === undefined) break;
      found.set(key, map);
    }
    if (found.size === keys.length) return Object.fromEntries(found) as Opened<Definitions>; // a map for each key
    for (const [key, map] of found) {
      map.close();
      this.#names.delete(pathOf(key));
    }
    return undefined;
  }

  /** What cannot be opened is as good as not there: it is replaced. */
  #find<T extends Pinned>(path: string, open: () => T | undefined): T | undefined {
    const found = attempt(open);
    if (found !== undefined) this.#names.set(path, found);
    return found;
  }

  /** What belongs to others may be in the way; then their folder stays. */
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

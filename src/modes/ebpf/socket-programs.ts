/** The programs of one family, and where they are attached. */
import type { Bpf, BpfLink, BpfProgram } from "../../kernel/bpf/bpf.ts";
import type { Hook } from "../../kernel/bpf/hooks.ts";
import { attempt } from "../../logging/attempt.ts";
import type { IpFamily } from "../../net/ip.ts";
import { closeAll, type Opened } from "./open-maps.ts";
import type { BalancerMaps } from "./socket-balancer/maps.ts";
import { type SocketProgramOptions, socketPrograms } from "./socket-balancer/programs.ts";
import type { SocketPins } from "./socket-pins.ts";

interface Attached {
  readonly name: string;
  readonly hook: Hook;
  readonly program: BpfProgram;
  /** Undefined until attached. */
  readonly link: BpfLink | undefined;
}

export class SocketPrograms {
  readonly #bpf: Bpf;
  readonly #family: IpFamily;
  #options: SocketProgramOptions;
  readonly #pins: SocketPins | undefined;
  readonly #assemble: typeof socketPrograms;
  #all: readonly Attached[] = [];
  #open: Opened<BalancerMaps> | undefined;
  /** Of the cgroup at which they were attached last. */
  #cgroupId: bigint | undefined;

  /**
   * @param pins where maps and links are found and kept; without them, everything ends with the process.
   * @param assemble builds the programs. @default {@link socketPrograms}
   */
  constructor(bpf: Bpf, family: IpFamily, options: SocketProgramOptions, pins?: SocketPins, assemble = socketPrograms) {
    this.#bpf = bpf;
    this.#assemble = assemble;
    this.#family = family;
    this.#options = options;
    this.#pins = pins;
  }

  get isAttached(): boolean {
    return this.#all.some(({ link }) => link !== undefined);
  }

  /** Loads the programs with these maps. Replaces attached ones one by one, with no gap. @throws BpfError */
  load(open: Opened<BalancerMaps>): void {
    const maps = Object.values(open);
    const definitions = Object.fromEntries(Object.entries(open).map(([name, map]) => [name, map.definition]));
    const old = this.#all;
    const loaded: Attached[] = [];
    try {
      const made = this.#assemble(this.#family, definitions as unknown as BalancerMaps, this.#options); // the names are the same
      for (const [index, [hook, program]] of made.entries()) {
        const link = old[index]?.link;
        loaded.push({ name: program.name, hook, program: this.#bpf.loadProgram(program, hook, maps), link });
      }
      for (const [index, { link, program }] of loaded.entries()) link?.replace(program, old[index]?.program);
    } catch (error) {
      closeAll(loaded.map(({ program }) => program));
      throw error;
    }
    this.#all = loaded;
    this.#open = open;
    closeAll(old.map(({ program }) => program));
    if (this.isAttached) this.keep();
  }

  /** Changes whether connected UDP sockets are redirected. Replaces programs as {@link load} does. @throws BpfError */
  leadConnectedUdp(leadsConnectedUdp: boolean): void {
    if (leadsConnectedUdp === this.#options.leadsConnectedUdp) return;
    this.#options = { ...this.#options, leadsConnectedUdp };
    if (this.#open !== undefined) this.load(this.#open);
  }

  /**
   * Attaches all programs to the cgroup, or none: links that an earlier process left there get these programs.
   * @returns whether none of them was attached, or not all. @throws BpfError
   */
  attach(cgroup: string): boolean {
    const cgroupId = this.#bpf.cgroupId(cgroup);
    const attached: Attached[] = [];
    let isNew = false;
    try {
      for (const one of this.#all) {
        const found = this.#takeOver(one, cgroupId);
        isNew ||= found === undefined;
        attached.push(found ?? this.#attach(one, cgroup));
      }
    } catch (error) {
      closeAll(attached.flatMap(({ link }) => link ?? []));
      throw error;
    }
    this.#all = attached;
    this.#cgroupId = cgroupId;
    this.keep();
    return isNew;
  }

  /** Pins maps, programs and links that are not pinned yet. */
  keep(): void {
    if (this.#open !== undefined) this.#pins?.keep(this.#open, this.#all);
  }

  /** Whether they are {@link isOrphaned} although their cgroup is still there: another folder of that name is another cgroup. */
  wereDetached(cgroup: string): boolean {
    return attempt(() => this.#bpf.cgroupId(cgroup)) === this.#cgroupId;
  }

  /** Whether their cgroup is gone, or another program has detached them. */
  get isOrphaned(): boolean {
    return this.#all.some(({ link }) => link?.cgroupId === 0n);
  }

  /** Detaches all programs. */
  close(): void {
    closeAll(this.#all.flatMap(({ link }) => link ?? []));
    closeAll(this.#all.map(({ program }) => program));
    this.#all = [];
  }

  /** Lets go of the programs. @returns whether they stay in force because they are pinned; if not, nothing was done. */
  release(): boolean {
    if (this.#pins === undefined || this.#pins.problem !== undefined) return false;
    for (const { link } of this.#all) link?.release();
    closeAll(this.#all.map(({ program }) => program));
    this.#all = [];
    return true;
  }

  #attach({ name, hook, program }: Attached, cgroup: string): Attached {
    return { name, hook, program, link: this.#bpf.attach(program, hook, cgroup) };
  }

  #takeOver(one: Attached, cgroupId: bigint): Attached | undefined {
    const link = this.#pins?.findLink(one.name, one.hook);
    if (link === undefined) return undefined;
    if (link.cgroupId !== cgroupId) {
      // The cgroup is gone, or another one is configured now.
      link.close();
      return undefined;
    }
    link.replace(one.program);
    return { ...one, link };
  }
}

/** The programs of one family, and where they are attached. */

import type { Program } from "../../kernel/bpf/asm/program.ts";
import type { Bpf, BpfLink, BpfProgram } from "../../kernel/bpf/bpf.ts";
import type { Hook } from "../../kernel/bpf/contexts.ts";
import type { BalancerMaps } from "../../kernel/bpf/socket-balancer/maps.ts";
import { socketProgram } from "../../kernel/bpf/socket-balancer/programs.ts";
import { hookFor, PROGRAMS, type SocketCall, type SocketKind } from "../../kernel/bpf/socket-balancer/socket-kind.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { OpenMaps } from "./socket-maps.ts";

export interface SocketProgramOptions {
  /** Of the network namespace that is the host's. */
  readonly hostCookie: bigint;
  /** Pods are left to the packet path. */
  readonly isForHostOnly: boolean;
  /** Connected UDP sockets of which network namespaces are led. */
  readonly connectedUdp: "all" | "host" | "none";
}

/**
 * The programs of a family in the order in which they are attached: an address is revealed before the first socket is led. Connected
 * UDP is led where its sockets can be told when their endpoint goes (reference ebpf.md §1.8). Pure.
 */
export function socketPrograms(
  family: IpFamily,
  maps: BalancerMaps,
  { connectedUdp, ...options }: SocketProgramOptions,
): readonly (readonly [Hook, Program])[] {
  const assemble = (call: SocketCall, kind: SocketKind): Program => {
    if (call !== "connect") return socketProgram(call, kind, maps, { ...options, protocols: ["UDP"] });
    if (connectedUdp === "none") return socketProgram(call, kind, maps, { ...options, protocols: ["TCP"] });
    return socketProgram(call, kind, maps, { ...options, connectedUdp });
  };
  return PROGRAMS[family].toReversed().map(([call, kind]) => [hookFor(call, kind), assemble(call, kind)] as const);
}

export class SocketPrograms {
  readonly #bpf: Bpf;
  readonly #family: IpFamily;
  readonly #options: SocketProgramOptions;
  #hooks: readonly Hook[] = [];
  #programs: readonly BpfProgram[] = [];
  #links: readonly BpfLink[] = [];

  constructor(bpf: Bpf, family: IpFamily, options: SocketProgramOptions) {
    this.#bpf = bpf;
    this.#family = family;
    this.#options = options;
  }

  get isAttached(): boolean {
    return this.#links.length > 0;
  }

  /** Loads the programs over these maps. What is attached is replaced, one by one, without a moment without. @throws BpfError */
  load({ definitions, maps }: OpenMaps): void {
    const old = this.#programs;
    const loaded: BpfProgram[] = [];
    const programs = socketPrograms(this.#family, definitions, this.#options);
    try {
      for (const [hook, program] of programs) {
        const used = maps.filter(({ definition }) => program.maps.includes(definition));
        loaded.push(this.#bpf.loadProgram(program, hook, used));
      }
      for (const [index, link] of this.#links.entries()) {
        const program = loaded[index];
        if (program !== undefined) link.replace(program);
      }
    } catch (error) {
      closeAll(loaded);
      throw error;
    }
    this.#programs = loaded;
    this.#hooks = programs.map(([hook]) => hook);
    closeAll(old);
  }

  /** From now on they decide about connections of processes in the cgroup. All are attached, or none. @throws BpfError */
  attach(cgroup: string): void {
    const links: BpfLink[] = [];
    try {
      for (const [index, program] of this.#programs.entries()) {
        const hook = this.#hooks[index];
        if (hook !== undefined) links.push(this.#bpf.attach(program, hook, cgroup));
      }
    } catch (error) {
      closeAll(links);
      throw error;
    }
    this.#links = links;
  }

  /** Whether the cgroup that they were attached to is gone. */
  get isOrphaned(): boolean {
    return this.#links.some(({ cgroupId }) => cgroupId === 0n);
  }

  close(): void {
    closeAll(this.#links);
    closeAll(this.#programs);
    this.#links = [];
    this.#programs = [];
  }
}

function closeAll(parts: readonly { close(): void }[]): void {
  for (const part of parts) part.close();
}

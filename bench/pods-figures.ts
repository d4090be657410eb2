/** What `npm run bench -- pods` hands from process to process. */

/** New connections; datagrams of a connected socket; those of one that is not, each with its address; bytes of one connection. */
export const LOADS = ["connect", "send", "sendto", "stream"] as const;
export type Load = (typeof LOADS)[number];

export interface PodTask {
  readonly load: Load;
  readonly targets: readonly (readonly [address: string, port: number])[];
  /** Connections or datagrams; of a stream MB. */
  readonly count: number;
}

/** For each connection, datagram or MB. */
export interface PodFigures {
  /** Until it is done: of connections the middle, otherwise all through their number. */
  readonly us: number;
  /** Processor time of this thread, and what the kernel does in it at once: also the way through the node. */
  readonly cpuUs: number;
  readonly failures: number;
}

export interface PodsTask {
  readonly services: number;
  /** Names of namespaces. */
  readonly client: string;
  readonly server: string;
  readonly cgroup: string;
  /** The chains that leave connections between pods untracked, as nft reads them. */
  readonly untracked: string;
}

export interface Arm {
  readonly load: Load;
  /** Whether the client's sockets are in the cgroup of the programs. */
  readonly isLed: boolean;
  readonly way: "direct" | "service";
  readonly isUntracked: boolean;
}

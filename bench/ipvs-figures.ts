/** What the ipvs bench is told to measure, and what it says; both cross the border of the virtual machine as JSON. */

export interface IpvsTask {
  readonly virtualServers: number;
  readonly realServersEach: number;
  readonly setEntries: number;
  readonly addresses: number;
  /** Every step is done so often by either side, in turns. */
  readonly rounds: number;
}

/** One step, done by this project and by a tool of the system. */
export interface IpvsStep {
  readonly what: string;
  readonly tool: string;
  /** Milliseconds by the clock, one for each round. */
  readonly oursMs: readonly number[];
  readonly toolMs: readonly number[];
  /** The longest that the event loop stood still in each of our rounds, milliseconds. */
  readonly pausesMs: readonly number[];
}

export interface IpvsFigures {
  /** Kernel and tools. */
  readonly machine: string;
  readonly steps: readonly IpvsStep[];
}

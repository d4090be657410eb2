/** What the bench of the inspect socket is asked for, and what it measures. Times are milliseconds. */
export interface StatusTask {
  readonly services: number;
  /** Changes a second. */
  readonly rate: number;
  readonly seconds: number;
}

export interface StatusFigures extends StatusTask {
  readonly answers: number;
  /** From the question to the answer, each over a connection of its own, as seen by another process. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Of the changes meanwhile. */
  readonly changeP99Ms: number;
  /** Processor time of `kube-proxy status`, and of Node.js that does nothing. */
  readonly commandCpuMs: number;
  readonly nodeCpuMs: number;
  /** Until the whole service table was read, while nothing changed. */
  readonly tableMs: number;
}

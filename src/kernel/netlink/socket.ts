/**
 * A netlink socket: requests with answers, dumps, and atomic nfnetlink batches. It runs one operation at a time and
 * queues the others. It supports any netlink family and leaves the meaning of messages to the caller (reference
 * nfnetlink.md §1, §3, §10, §11).
 *
 * The kernel handles a request inside `send`, so answers are read without waiting; a worker thread waits only for late
 * answers. Large transactions are sent from a worker thread; long dumps and long series of requests yield to the event
 * loop.
 */

import { Mutex } from "../../async/mutex.ts";
import { giveTurn, isTurnDue } from "../../async/turns.ts";
import { NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP } from "./constants.ts";
import { NetlinkDescriptor } from "./descriptor.ts";
import { NetlinkError } from "./errors.ts";
import { errorFromReply, forEachMessage, type Reply, type ReplyVisitor, statusOf } from "./frames.ts";
import type { MessageBuffer } from "./message-buffer.ts";
import { NFNL_MSG_BATCH_END } from "./nfnetlink.ts";

export interface NetlinkOptions {
  /** Size of the receive buffer. @default the system's */
  readonly receiveBufferBytes?: number;
  /** See `DescriptorOptions`. */
  readonly filtersDumps?: boolean;
}

export interface CallOptions {
  /** Rejects with the signal's reason. Before the request is sent, nothing happens; after that, the kernel has already acted. */
  readonly signal?: AbortSignal | undefined;
  /** Sends from a worker thread, for requests that take the kernel long (walking a large table). @default false */
  readonly isSlow?: boolean;
  /** Requests no acknowledgements: each request is answered by exactly one message or an error. @default false */
  readonly isAnsweredOnce?: boolean;
}

/** Receives an answer and the index of its request. */
type AnswerVisitor = (reply: Reply, request: number) => void;

/** The outcome of an atomic batch. */
export type BatchResult =
  | { readonly committed: true }
  | {
      readonly committed: false;
      /** One error per rejected message, in the kernel's order. */
      readonly errors: readonly NetlinkError[];
      /** Further errors were lost because the receive buffer was full. */
      readonly isTruncated: boolean;
    };

/** So few that the default receive buffer holds all acknowledgements. */
const REQUESTS_PER_SEND = 64;
/** Larger transactions are sent from a worker thread: this is about 3 ms of kernel work. */
const SEND_ELSEWHERE_BYTES = 32 * 1024;
/** Notifications of changes by closed descriptors may still be under way. */
const REMEMBERED_PORTS = 8;
const ANSWER_TIMEOUT_MS = 5000;
const WAIT_SLICE_MS = 250;

export class NetlinkSocket implements AsyncDisposable {
  readonly #protocol: number;
  readonly #options: NetlinkOptions;
  readonly #turns = new Mutex();
  #descriptor: NetlinkDescriptor;
  #isClosed = false;
  #sequence = 1;
  /** Whether the last operation read all its answers, so that no stale one can be queued. */
  #isDrained = true;
  /** Whether this kernel was seen to acknowledge the end of a batch; older kernels do not. */
  #acknowledgesEnd = false;
  #commits = 0;
  /** This socket's port ids, newest last: it opens a new descriptor after a failure. */
  readonly #portIds: number[] = [];

  /** Opens and binds. Throws a {@link NetlinkError} (`EPERM`, `EPROTONOSUPPORT`, …). */
  static open(protocol: number, options: NetlinkOptions = {}): NetlinkSocket {
    return new NetlinkSocket(protocol, options);
  }

  private constructor(protocol: number, options: NetlinkOptions) {
    this.#protocol = protocol;
    this.#options = options;
    this.#descriptor = this.#openDescriptor();
  }

  /** The current port id; see {@link NetlinkDescriptor.portId}. */
  get portId(): number {
    return this.#descriptor.portId;
  }

  /** The number of batches that the kernel has applied. */
  get commits(): number {
    return this.#commits;
  }

  /** Whether this socket caused a notification with this port id. */
  hasPort(portId: number): boolean {
    return this.#portIds.includes(portId);
  }

  /**
   * Sends independent requests and waits for all answers.
   *
   * @param onReply called for each message other than acknowledgements, with the index of its request.
   * @returns the errors of rejected requests; empty if all succeeded. @throws NetlinkError if the socket itself fails.
   */
  exchange(
    messages: MessageBuffer,
    onReply?: AnswerVisitor,
    options: CallOptions = {},
  ): Promise<readonly NetlinkError[]> {
    return this.#run(options, async () => {
      for (let index = 0; index < messages.count && options.isAnsweredOnce !== true; index++) {
        if ((messages.flagsOf(index) & NLM_F_DUMP) !== NLM_F_DUMP) messages.addFlags(index, NLM_F_ACK);
      }
      const errors: NetlinkError[] = [];
      const base = this.#takeSequence(messages);
      for (let first = 0; first < messages.count; first += REQUESTS_PER_SEND) {
        const next = Math.min(first + REQUESTS_PER_SEND, messages.count);
        const bytes = messages.bytes.subarray(messages.startOf(first), messages.startOf(next));
        if (options.isSlow === true) await this.#descriptor.send(bytes);
        else this.#descriptor.sendNow(bytes);
        await this.#readAnswers(messages, base, next - first, errors, onReply, options);
        if (isTurnDue()) await giveTurn();
        if (next < messages.count) options.signal?.throwIfAborted();
      }
      return errors;
    });
  }

  /** {@link exchange} that throws the first error. */
  async request(messages: MessageBuffer, onReply?: ReplyVisitor, options?: CallOptions): Promise<void> {
    const [error] = await this.exchange(messages, onReply, options);
    if (error !== undefined) throw error;
  }

  /**
   * Sends one dump request (with NLM_F_DUMP) and visits every object. Throws `interrupted` at the end if the kernel's
   * tables changed during the dump, or `overrun` if messages were lost: the visited objects may then be incomplete.
   */
  dump(message: MessageBuffer, onReply: ReplyVisitor, options: CallOptions = {}): Promise<void> {
    return this.request(message, onReply, options);
  }

  /**
   * Sends an nfnetlink batch (from BATCH_BEGIN to BATCH_END) as the one datagram that the kernel requires: it applies all of it
   * or nothing. As proof that the kernel understood the batch, this requests an acknowledgement of the end marker, and of the last
   * message until the kernel is known to acknowledge the marker. Without the end marker the kernel only checks the batch.
   */
  transact(batch: MessageBuffer, options: CallOptions = {}): Promise<BatchResult> {
    return this.#run(options, async () => {
      if (batch.count < 2) return { committed: true };
      batch.addFlags(batch.count - 1, NLM_F_ACK);
      const isFinished = batch.typeOf(batch.count - 1) === NFNL_MSG_BATCH_END;
      if (!isFinished || !this.#acknowledgesEnd) batch.addFlags(batch.count - 2, NLM_F_ACK);
      const base = this.#takeSequence(batch);
      const bytes = batch.bytes;
      this.#descriptor.reserveSend(bytes.length);
      if (options.isSlow === true || bytes.length > SEND_ELSEWHERE_BYTES) await this.#descriptor.send(bytes);
      else this.#descriptor.sendNow(bytes);
      const result = this.#readBatchResult(batch, base);
      if (isFinished && result.committed) this.#commits += 1;
      return result;
    });
  }

  /** Closes after the current operation; queued ones reject with `closed`. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#turns.run(async () => this.#descriptor.close());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #run<T>(options: CallOptions, operation: () => Promise<T>): Promise<T> {
    return this.#turns.run(async () => {
      if (this.#isClosed) throw new NetlinkError("closed", "netlink: the socket is closed");
      if (this.#descriptor.isClosed) this.#descriptor = this.#openDescriptor();
      else if (!this.#isDrained) this.#discardStale();
      this.#isDrained = false;
      try {
        return await operation();
      } catch (error) {
        // Answers to this operation may still come, and a running dump blocks the next: continue on a new descriptor.
        this.#descriptor.close();
        throw error;
      }
    }, options.signal);
  }

  #openDescriptor(): NetlinkDescriptor {
    const descriptor = new NetlinkDescriptor(this.#protocol, this.#options);
    this.#portIds.push(descriptor.portId);
    if (this.#portIds.length > REMEMBERED_PORTS) this.#portIds.shift();
    return descriptor;
  }

  #takeSequence(messages: MessageBuffer): number {
    const base = this.#sequence;
    this.#sequence = (base + messages.count) >>> 0;
    messages.setSequence(base);
    return base;
  }

  /** Drops messages that arrived after their operation had ended (reference nfnetlink.md §11). */
  #discardStale(): void {
    try {
      while (this.#descriptor.receive() >= 0);
    } catch (error) {
      if (!(error instanceof NetlinkError) || error.code !== "overrun") throw error;
    }
  }

  /** Reads until each of `expected` requests was acknowledged or rejected, or has ended its dump. */
  async #readAnswers(
    sent: MessageBuffer,
    base: number,
    expected: number,
    errors: NetlinkError[],
    onReply: AnswerVisitor | undefined,
    { signal, isAnsweredOnce = false }: CallOptions,
  ): Promise<void> {
    let missing = expected;
    let isInterrupted = false;
    const visit = (reply: Reply): void => {
      const index = (reply.sequence - base) >>> 0;
      if (index >= sent.count) return;
      if (reply.flags & NLM_F_DUMP_INTR) isInterrupted = true;
      if (reply.type === NLMSG_ERROR || reply.type === NLMSG_DONE) {
        missing--;
        if (statusOf(reply) < 0) errors.push(errorFromReply(reply, sent, index));
      } else if (reply.type !== NLMSG_NOOP) {
        if (isAnsweredOnce) missing--;
        onReply?.(reply, index);
      }
    };
    while (missing > 0) {
      const length = this.#descriptor.receive();
      if (length < 0) await this.#waitForAnswer(signal);
      else forEachMessage(this.#descriptor.input, length, visit);
      const turn = missing > 0 && isTurnDue() ? giveTurn() : undefined;
      if (turn === undefined) continue;
      await turn;
      signal?.throwIfAborted();
    }
    if (isInterrupted) {
      errors.push(new NetlinkError("interrupted", "netlink: the kernel's table changed during the dump: repeat it"));
    }
  }

  async #waitForAnswer(signal: AbortSignal | undefined): Promise<void> {
    const deadline = performance.now() + ANSWER_TIMEOUT_MS;
    while (!(await this.#descriptor.readable(WAIT_SLICE_MS))) {
      signal?.throwIfAborted();
      if (performance.now() > deadline) {
        throw new NetlinkError("timeout", `netlink: no answer from the kernel within ${ANSWER_TIMEOUT_MS} ms`);
      }
    }
  }

  #readBatchResult(batch: MessageBuffer, base: number): BatchResult {
    const errors: NetlinkError[] = [];
    let isAcknowledged = false;
    let isEndAcknowledged = false;
    let isTruncated = false;
    const visit = (reply: Reply): void => {
      const index = (reply.sequence - base) >>> 0;
      if (index >= batch.count || reply.type !== NLMSG_ERROR) return;
      if (statusOf(reply) !== 0) errors.push(errorFromReply(reply, batch, index));
      else {
        isAcknowledged = true;
        isEndAcknowledged = index === batch.count - 1 && batch.typeOf(index) === NFNL_MSG_BATCH_END;
      }
    };
    while (!isEndAcknowledged) {
      try {
        const length = this.#descriptor.receive(!isAcknowledged);
        if (length < 0) break;
        forEachMessage(this.#descriptor.input, length, visit);
      } catch (error) {
        if (!(error instanceof NetlinkError) || error.code !== "overrun") throw error;
        isTruncated = true;
      }
    }
    this.#isDrained = true;
    if (isEndAcknowledged) this.#acknowledgesEnd = true;
    // The kernel acknowledges the end only after the commit: then it does not matter that other answers were lost.
    if (errors.length === 0 && isTruncated && !isEndAcknowledged) {
      errors.push(new NetlinkError("overrun", "netlink: the batch was refused, but the kernel's answers were lost"));
    } else if (errors.length === 0 && !isAcknowledged) {
      errors.push(new NetlinkError("malformed", "netlink: the kernel ignored the batch: a message has a wrong length"));
    }
    return errors.length === 0 ? { committed: true } : { committed: false, errors, isTruncated };
  }
}

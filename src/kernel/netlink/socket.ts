/**
 * A netlink socket: requests with answers, dumps, and atomic nfnetlink batches. One operation at a time; further ones
 * wait their turn. Speaks any netlink family; what the messages mean is the caller's business (reference nfnetlink.md
 * §1, §3, §10, §11).
 *
 * The kernel handles a request inside `send`, so answers are read without waiting; a worker thread waits only when an
 * answer is late. Large transactions are sent from a worker thread; long dumps, and many requests, let the event loop turn in
 * between.
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
  /** Size of the receive buffer; the system's default when absent. */
  readonly receiveBufferBytes?: number;
  /** See `DescriptorOptions`. */
  readonly filtersDumps?: boolean;
}

export interface CallOptions {
  /** Rejects with the signal's reason. Before the request is sent nothing happens; later the kernel has already acted. */
  readonly signal?: AbortSignal | undefined;
  /** The kernel is known to work long on the request (walking a large table): send it from a worker thread. */
  readonly isSlow?: boolean;
  /** Each request is answered by one message, or refused: no acknowledgements are asked for. @default false */
  readonly isAnsweredOnce?: boolean;
}

/** Sees an answer, and the index of the request that it is for. */
type AnswerVisitor = (reply: Reply, request: number) => void;

/** What became of an atomic batch. */
export type BatchResult =
  | { readonly committed: true }
  | {
      readonly committed: false;
      /** One error per refused message, in the order the kernel met them. */
      readonly errors: readonly NetlinkError[];
      /** Further errors were lost because the receive buffer was full. */
      readonly isTruncated: boolean;
    };

/** Datagrams of acknowledged requests stay below what the default receive buffer holds as answers. */
const REQUESTS_PER_SEND = 64;
/** From here on a transaction is sent off the main thread: about 3 ms of kernel work. */
const SEND_ELSEWHERE_BYTES = 32 * 1024;
/** Notifications of closed descriptors may still be under way. */
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
  /** No answer to an earlier operation can be waiting: the last one read all there was. */
  #isDrained = true;
  /** The kernel acknowledges the end of a batch, as was seen; older ones do not. */
  #acknowledgesEnd = false;
  #commits = 0;
  /** Port ids that this socket has had, newest last: failures make it open a new descriptor. */
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

  /** The kernel's number for it now. */
  get portId(): number {
    return this.#descriptor.portId;
  }

  /** Batches that the kernel has applied. */
  get commits(): number {
    return this.#commits;
  }

  /** Whether a notification with this port id is due to this socket. */
  hasPort(portId: number): boolean {
    return this.#portIds.includes(portId);
  }

  /**
   * Sends requests that do not depend on each other and waits for all answers.
   *
   * @param onReply sees what the kernel sends besides acknowledgements, with the index of its request.
   * @returns the errors of the refused requests; empty when all succeeded. Throws when the socket itself fails.
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

  /** {@link exchange} for requests of which none may fail: throws the first error. */
  async request(messages: MessageBuffer, onReply?: ReplyVisitor, options?: CallOptions): Promise<void> {
    const [error] = await this.exchange(messages, onReply, options);
    if (error !== undefined) throw error;
  }

  /**
   * Sends one dump request (with NLM_F_DUMP) and visits every object. Throws `interrupted` at the end when the kernel's
   * tables changed meanwhile: what was visited may then be incomplete; `overrun` likewise.
   */
  dump(message: MessageBuffer, onReply: ReplyVisitor, options: CallOptions = {}): Promise<void> {
    return this.request(message, onReply, options);
  }

  /**
   * Sends an nfnetlink batch (from BATCH_BEGIN to BATCH_END) as the one datagram that the kernel requires: all of it is
   * applied, or nothing. An acknowledgement is asked for the end marker, and for the last message as long as the kernel is not
   * known to acknowledge the other, as proof that the batch was understood at all. Without the end marker the kernel only checks it.
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

  /** Closes once the operation under way is over; those that wait are rejected with `closed`. Idempotent. */
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
        // Answers of the abandoned operation may still come, and a running dump refuses the next: that has another descriptor.
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

  /** Errors that came after an earlier operation had ended belong to none (reference nfnetlink.md §11). */
  #discardStale(): void {
    try {
      while (this.#descriptor.receive() >= 0);
    } catch (error) {
      if (!(error instanceof NetlinkError) || error.code !== "overrun") throw error;
    }
  }

  /** Reads until each of `expected` requests has been acknowledged, refused or has ended its dump. */
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
    const visit = (reply: Reply): undefined => {
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
    /** What comes last. */
    let isEndAcknowledged = false;
    let isTruncated = false;
    const visit = (reply: Reply): undefined => {
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
    // The end is acknowledged after the commit alone: other answers may have been lost.
    if (errors.length === 0 && isTruncated && !isEndAcknowledged) {
      errors.push(new NetlinkError("overrun", "netlink: the batch was refused, but the kernel's answers were lost"));
    } else if (errors.length === 0 && !isAcknowledged) {
      errors.push(new NetlinkError("malformed", "netlink: the kernel ignored the batch: a message has a wrong length"));
    }
    return errors.length === 0 ? { committed: true } : { committed: false, errors, isTruncated };
  }
}

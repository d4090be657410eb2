/** The kernel's IP sets over nfnetlink. */

import { giveTurn, isTurnDue } from "../../async/turns.ts";
import type { IpFamily } from "../../net/ip.ts";
import { NETLINK_NETFILTER } from "../netlink/constants.ts";
import type { NetlinkError } from "../netlink/errors.ts";
import type { ReplyVisitor } from "../netlink/frames.ts";
import { MessageBuffer } from "../netlink/message-buffer.ts";
import { nfnetlinkPayload } from "../netlink/nfnetlink.ts";
import { type CallOptions, NetlinkSocket } from "../netlink/socket.ts";
import {
  type Ipset,
  type IpsetDefinition,
  type IpsetEntry,
  IpsetError,
  type IpsetFailure,
  type IpsetOperation,
  type IpsetType,
} from "./ipset.ts";
import { creationOf, ipsetError, ipsetErrorName, ipsetFailure } from "./ipset-failure.ts";
import { type IpsetReply, IpsetWriter, isIpsetType, readReply } from "./ipset-messages.ts";

/** The newest version of the interface known here; kernels speak 6 (before 4.20) or 6 and 7. */
const NEWEST_PROTOCOL = 7;
/** Operations that are sent in one go, about 50 bytes each. */
const OPERATIONS_PER_WINDOW = 500;
/** Where the buffer begins. */
const SMALL_REQUEST_BYTES = 256;
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/** The sets of this process's network namespace. */
interface NetlinkIpset extends Ipset, AsyncDisposable {}

/** Opens the sets; the kernel is first spoken to by the first call. */
export function openIpset(): NetlinkIpset {
  return new NfnetlinkIpset(NetlinkSocket.open(NETLINK_NETFILTER, { receiveBufferBytes: RECEIVE_BUFFER_BYTES }));
}

class NfnetlinkIpset implements NetlinkIpset {
  readonly #socket: NetlinkSocket;
  #protocol: number | undefined;
  /** By type and family: asked once. */
  readonly #revisions = new Map<string, number>();

  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  async sets(): Promise<readonly IpsetDefinition[]> {
    const found: IpsetDefinition[] = [];
    await this.#request(
      "list the sets",
      (writer) => writer.listHeaders(),
      ({ name, type, family }) => {
        if (name !== undefined && type !== undefined && isIpsetType(type)) found.push({ name, type, family });
      },
    );
    return found;
  }

  async definition(
    name: string,
  ): Promise<{ readonly type: string; readonly family: IpFamily | undefined } | undefined> {
    let found: { readonly type: string; readonly family: IpFamily | undefined } | undefined;
    const keep = ({ type, family }: IpsetReply): void => {
      if (type !== undefined) found = { type, family };
    };
    await this.#requestUnlessMissing(`look at the set ${name}`, (writer) => writer.askHeader(name), keep);
    return found;
  }

  async ensure(definition: IpsetDefinition): Promise<void> {
    const { name, type, family } = definition;
    const what = creationOf(definition);
    const revision = await this.#revision(type, family);
    let found: IpsetReply | undefined;
    await this.#request(
      what,
      (writer) => {
        writer.create(definition, revision);
        writer.askHeader(name);
      },
      (reply) => {
        found = reply;
      },
    );
    // The kernel takes sets of one type and two families for the same.
    if (found?.family !== family) throw ipsetError(what, "EEXIST");
  }

  async members(name: string, signal?: AbortSignal): Promise<readonly IpsetEntry[] | undefined> {
    const found: IpsetEntry[] = [];
    const keep = ({ entries }: IpsetReply): void => {
      for (const entry of entries) found.push(entry);
    };
    const exists = await this.#requestUnlessMissing(`list the set ${name}`, (writer) => writer.list(name), keep, {
      signal,
    });
    return exists ? found : undefined;
  }

  async apply(operations: readonly IpsetOperation[], signal?: AbortSignal): Promise<readonly IpsetFailure[]> {
    const failures: IpsetFailure[] = [];
    for (let first = 0; first < operations.length; first += OPERATIONS_PER_WINDOW) {
      if (isTurnDue()) await giveTurn();
      const window = operations.slice(first, first + OPERATIONS_PER_WINDOW);
      const errors = await this.#exchange((writer) => writeTogether(writer, window), undefined, { signal });
      // A message of several operations stops at the first refusal. Repeating those that were done changes nothing.
      if (errors.length > 0) failures.push(...(await this.#applyOneByOne(window, signal)));
    }
    return failures;
  }

  async destroy(name: string): Promise<void> {
    await this.#requestUnlessMissing(`destroy the set ${name}`, (writer) => writer.destroy(name));
  }

  close(): Promise<void> {
    return this.#socket.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #applyOneByOne(
    window: readonly IpsetOperation[],
    signal: AbortSignal | undefined,
  ): Promise<readonly IpsetFailure[]> {
    const failures: IpsetFailure[] = [];
    const errors = await this.#exchange(
      (writer) => {
        for (const operation of window) writer.operation(operation);
      },
      undefined,
      { signal },
    );
    for (const error of errors) {
      const operation = window[error.facts.request?.index ?? -1];
      if (operation === undefined) continue;
      failures.push(
        ipsetFailure(operation, codeOf(error, operation.entry.kind === "port" ? "bitmap:port" : "hash:ip")),
      );
    }
    return failures;
  }

  /** The revision that the `ipset` tool would choose: the kernel's highest. */
  async #revision(type: IpsetType, family: IpFamily | undefined): Promise<number> {
    const key = `${type} ${family}`;
    const known = this.#revisions.get(key);
    if (known !== undefined) return known;
    let revision = 0;
    await this.#request(
      `create sets of type ${type}`,
      (writer) => writer.askType(type, family),
      (reply) => {
        revision = reply.revision ?? 0;
      },
    );
    this.#revisions.set(key, revision);
    return revision;
  }

  /** @param what as in "cannot what". */
  async #request(what: string, ...request: RequestArguments): Promise<void> {
    const [error] = await this.#exchange(...request);
    if (error !== undefined) throw ipsetError(what, codeOf(error, "hash:ip"), { cause: error });
  }

  /** The same for what need not be there. @returns whether it was. */
  async #requestUnlessMissing(what: string, ...request: RequestArguments): Promise<boolean> {
    try {
      await this.#request(what, ...request);
      return true;
    } catch (error) {
      if (!(error instanceof IpsetError) || error.code !== "ENOENT") throw error;
      return false;
    }
  }

  async #exchange(...[write, onReply, options]: RequestArguments): Promise<readonly NetlinkError[]> {
    this.#protocol ??= await this.#negotiate();
    return this.#send(this.#protocol, write, onReply, options);
  }

  #send(protocol: number, ...[write, onReply, options]: RequestArguments): Promise<readonly NetlinkError[]> {
    const messages = new MessageBuffer(SMALL_REQUEST_BYTES);
    write(new IpsetWriter(messages, protocol));
    const visit: ReplyVisitor = (reply) => {
      const { input, start, end } = nfnetlinkPayload(reply);
      onReply?.(readReply(input, start, end));
    };
    return this.#socket.exchange(messages, visit, options);
  }

  /** The newest version that both sides speak. */
  async #negotiate(): Promise<number> {
    let kernels = NEWEST_PROTOCOL;
    const [error] = await this.#send(
      NEWEST_PROTOCOL,
      (writer) => writer.askProtocol(),
      ({ protocol }) => {
        kernels = protocol ?? kernels;
      },
    );
    if (error !== undefined) {
      const why = error.code === "EPERM" ? "" : ": load the module ip_set (modprobe ip_set)";
      throw new IpsetError(error.code, `ipset: the kernel's IP sets cannot be used (${error.code})${why}`, {
        cause: error,
      });
    }
    return Math.min(kernels, NEWEST_PROTOCOL);
  }
}

type RequestArguments = [
  write: (writer: IpsetWriter) => void,
  onReply?: ((reply: IpsetReply) => void) | undefined,
  options?: CallOptions | undefined,
];

/** Neighbours of one kind and one set go into one message: one parse and one lock for hundreds of members. */
function writeTogether(writer: IpsetWriter, window: readonly IpsetOperation[]): void {
  for (let first = 0; first < window.length; ) {
    const operation = window[first];
    if (operation === undefined) return;
    const { kind, set } = operation;
    let next = first + 1;
    while (window[next]?.kind === kind && window[next]?.set === set) next++;
    if (next === first + 1) writer.operation(operation);
    else
      writer.operations(
        kind,
        set,
        window.slice(first, next).map(({ entry }) => entry),
      );
    first = next;
  }
}

/** @param type for the error numbers of entries, which mean different things. */
function codeOf({ code, facts }: NetlinkError, type: IpsetType): string {
  return facts.errno === undefined ? code : ipsetErrorName(facts.errno, type);
}

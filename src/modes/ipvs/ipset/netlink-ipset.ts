/** The kernel's IP sets over nfnetlink. */
import { giveTurn, isTurnDue } from "../../../async/turns.ts";
import { NETLINK_NETFILTER } from "../../../kernel/netlink/constants.ts";
import { errnoName, type NetlinkError } from "../../../kernel/netlink/errors.ts";
import type { ReplyVisitor } from "../../../kernel/netlink/frames.ts";
import { MessageBuffer } from "../../../kernel/netlink/message-buffer.ts";
import { nfnetlinkPayload } from "../../../kernel/netlink/nfnetlink.ts";
import { type CallOptions, NetlinkSocket } from "../../../kernel/netlink/socket.ts";
import type { IpFamily } from "../../../net/ip.ts";
import {
  type Ipset,
  type IpsetDefinition,
  type IpsetEntry,
  IpsetError,
  type IpsetFailure,
  type IpsetOperation,
  type IpsetType,
  ipsetEntryText,
} from "./ipset.ts";
import { type IpsetReply, IpsetWriter, readReply } from "./ipset-messages.ts";

/** The newest protocol version that we support; kernels support 6 (before 4.20) or 6 and 7. */
const NEWEST_PROTOCOL = 7;
/** Operations per batch of messages, about 50 bytes each. */
const OPERATIONS_PER_WINDOW = 500;
/** The initial buffer size. */
const SMALL_REQUEST_BYTES = 256;
const RECEIVE_BUFFER_BYTES = 1024 * 1024;

/** The sets of this process's network namespace. */
interface NetlinkIpset extends Ipset, AsyncDisposable {}

/** Opens the sets; the first method call is the first request to the kernel. */
export function openIpset(): NetlinkIpset {
  return new NfnetlinkIpset(NetlinkSocket.open(NETLINK_NETFILTER, { receiveBufferBytes: RECEIVE_BUFFER_BYTES }));
}

class NfnetlinkIpset implements NetlinkIpset {
  readonly #socket: NetlinkSocket;
  #protocol: number | undefined;
  /** Caches revisions by type and family. */
  readonly #revisions = new Map<string, number>();

  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  async sets(): Promise<readonly IpsetDefinition<string>[]> {
    const found: IpsetDefinition<string>[] = [];
    await this.#request(
      "list the sets",
      (writer) => writer.listHeaders(),
      ({ name, type, family }) => {
        if (name !== undefined && type !== undefined) found.push({ name, type, family });
      },
    );
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
    // The kernel does not compare the families of sets of one type.
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
      // A message of several operations stops at the first error. Repeating those already done changes nothing.
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

  /** The kernel's highest revision, which the `ipset` tool would choose too. */
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

  /** @param what completes the sentence "cannot …". */
  async #request(what: string, ...request: RequestArguments): Promise<void> {
    const [error] = await this.#exchange(...request);
    if (error !== undefined) throw ipsetError(what, codeOf(error, "hash:ip"), { cause: error });
  }

  /** {@link #request} for a set that may be missing. @returns whether it exists. */
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

  /** The newest protocol version that both sides support. */
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

/** Joins adjacent operations of one kind on one set into one message: one parse and one lock for hundreds of members. */
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

/** @param type the set's type: error numbers of entries depend on it. */
function codeOf({ code, facts }: NetlinkError, type: IpsetType): string {
  return facts.errno === undefined ? code : ipsetErrorName(facts.errno, type);
}

/** IPSET_MAXNAMELEN without the terminator. */
const NAME_LIMIT = 31;

/** Explanations of error codes (uapi/linux/netfilter/ipset/ip_set.h). */
const CAUSES: Readonly<Record<string, string>> = {
  ENOENT: "there is no such set",
  EEXIST: "the name belongs to a set of another type, family or definition: destroy that one or rename it",
  EPERM: "not permitted, this needs CAP_NET_ADMIN",
  ENAMETOOLONG: "the name has more than 31 characters",
  IPSET_ERR_BUSY: "a rule or another set refers to it: remove that first",
  IPSET_ERR_EXIST_SETNAME2: "there is no second set of that name",
  IPSET_ERR_FIND_TYPE: "the kernel has no such set type: load its module (ip_set_hash_*, ip_set_bitmap_port)",
  IPSET_ERR_HASH_FULL: "the set is full",
  IPSET_ERR_INVALID_CIDR: "the kernel accepts no network of length 0: add its two halves",
  IPSET_ERR_PROTOCOL: "the entry does not fit the set's type or family",
  IPSET_ERR_TYPE_MISMATCH: "the sets differ in type or family",
};

/** A failed operation: `ipset: cannot add 10.0.0.1 to KUBE-…: the set is full (IPSET_ERR_HASH_FULL)`. */
export function ipsetFailure(operation: IpsetOperation, code: string): IpsetFailure {
  const { kind, set, entry } = operation;
  const preposition = kind === "add" ? "to" : "from";
  return { operation, code, message: message(`${kind} ${ipsetEntryText(entry)} ${preposition} ${set}`, code) };
}

/** The error of a failed request. @param what completes the sentence "cannot …". */
export function ipsetError(what: string, code: string, options?: ErrorOptions): IpsetError {
  return new IpsetError(code, message(what, code), options);
}

/** Completes "cannot …". Throws an IpsetError for a name that is too long: the kernel would only say "invalid". */
export function creationOf({ name, type }: IpsetDefinition): string {
  const what = `create the ${type} set ${name}`;
  if (Buffer.byteLength(name) > NAME_LIMIT) throw ipsetError(what, "ENAMETOOLONG");
  return what;
}

function message(what: string, code: string): string {
  const cause = CAUSES[code];
  return `ipset: cannot ${what}: ${cause === undefined ? code : `${cause} (${code})`}`;
}

/** IPSET_ERR_PRIVATE; {@link COMMON_NAMES} start one above. */
const PRIVATE = 4096;
const COMMON_NAMES = [
  "PROTOCOL",
  "FIND_TYPE",
  "MAX_SETS",
  "BUSY",
  "EXIST_SETNAME2",
  "TYPE_MISMATCH",
  "EXIST",
  "INVALID_CIDR",
  "INVALID_NETMASK",
  "INVALID_FAMILY",
  "TIMEOUT",
  "REFERENCED",
  "IPADDR_IPV4",
  "IPADDR_IPV6",
  "COUNTER",
  "COMMENT",
  "INVALID_MARKMASK",
  "SKBINFO",
  "BITMASK_NETMASK_EXCL",
];
/** IPSET_ERR_TYPE_SPECIFIC: from here on, the meaning of a number depends on the set's type. */
const TYPE_SPECIFIC = 4352;
const HASH_NAMES = ["HASH_FULL", "HASH_ELEM", "INVALID_PROTO", "MISSING_PROTO", "HASH_RANGE_UNSUPPORTED", "HASH_RANGE"];
const BITMAP_NAMES = ["BITMAP_RANGE", "BITMAP_RANGE_SIZE"];

/** The name of a positive errno: 4352 is `IPSET_ERR_HASH_FULL` for hash types, 17 is `EEXIST`. */
export function ipsetErrorName(errno: number, type: IpsetType): string {
  const specific = type === "bitmap:port" ? BITMAP_NAMES : HASH_NAMES;
  const name = COMMON_NAMES[errno - PRIVATE - 1] ?? specific[errno - TYPE_SPECIFIC];
  return name === undefined ? errnoName(errno) : `IPSET_ERR_${name}`;
}

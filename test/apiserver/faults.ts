/** Faults that the test API server can inject into a response. */
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { createGzip, type Gzip } from "node:zlib";
import { type StatusOptions, statusObject } from "./status-object.ts";
import type { WireFormat } from "./wire-format.ts";

export type Fault =
  | {
      readonly kind: "status";
      readonly code: number;
      readonly reason?: string;
      readonly message?: string;
      readonly retryAfterSeconds?: number;
      readonly cause?: string;
    }
  /** Status 200 with unrelated content, as from a captive portal. */
  | { readonly kind: "text"; readonly contentType: string; readonly text: string }
  /** The connection closes without a response. */
  | { readonly kind: "reset" }
  /** The connection stays open without a response. */
  | { readonly kind: "silent" }
  /** The connection is cut in the middle of the body. */
  | { readonly kind: "cut"; readonly afterBytes: number }
  /** The body ends early, as if it were complete. */
  | { readonly kind: "truncate"; readonly afterBytes: number }
  /** The connection stays open but the body stalls. */
  | { readonly kind: "stall"; readonly afterBytes: number }
  /** The body arrives in small pieces. */
  | { readonly kind: "slow"; readonly pieceBytes: number; readonly delayMs: number };

/** A captive portal's response to any request. */
export const WEB_PAGE: Fault = {
  kind: "text",
  contentType: "text/html",
  text: "<html><body>Please log in</body></html>",
};

/** A response body with or without a fault. */
export class FaultyBody {
  readonly #response: ServerResponse;
  readonly #fault: Fault | undefined;
  readonly #onSent: (bytes: number) => void;
  readonly #gzip: Gzip | undefined;
  #left: number;
  #isOver = false;
  #queue: Promise<void> = Promise.resolve();

  /** @param onSent called with the number of written bytes. */
  constructor(
    response: ServerResponse,
    fault: Fault | undefined,
    isCompressed: boolean,
    onSent: (bytes: number) => void = () => {},
  ) {
    this.#response = response;
    this.#fault = fault;
    this.#onSent = onSent;
    this.#left = fault !== undefined && "afterBytes" in fault ? fault.afterBytes : Number.POSITIVE_INFINITY;
    if (!isCompressed) return;
    this.#gzip = createGzip();
    this.#gzip.on("data", (chunk: Buffer) => this.#send(chunk));
    this.#gzip.on("end", () => this.#finish());
  }

  write(content: string | Buffer): void {
    if (this.#isOver) return;
    const bytes = Buffer.from(content);
    if (this.#gzip === undefined) this.#send(bytes);
    else this.#gzip.write(bytes);
  }

  /** Sends everything that `write` writes in one piece, so that tests do not wait for many small writes. */
  inOnePiece(write: () => void): void {
    this.#response.cork();
    write();
    this.#response.uncork();
  }

  /** Ends the response unless a fault keeps it open. */
  end(): void {
    if (this.#gzip === undefined) this.#finish();
    else this.#gzip.end();
  }

  /** Stops sending; the connection stays open. */
  stall(): void {
    this.#isOver = true;
  }

  cut(): void {
    this.#isOver = true;
    this.#response.destroy();
  }

  #send(bytes: Buffer): void {
    if (this.#isOver || this.#response.destroyed) return;
    const fault = this.#fault;
    this.#onSent(bytes.length);
    if (fault?.kind === "slow") {
      this.#queue = this.#queue.then(() => this.#sendSlowly(bytes, fault.pieceBytes, fault.delayMs));
      return;
    }
    const part = bytes.subarray(0, this.#left);
    this.#left -= part.length;
    if (part.length > 0) this.#response.write(part);
    if (this.#left > 0) return;
    this.#isOver = true;
    if (fault?.kind === "truncate") this.#response.end();
    if (fault?.kind === "cut") setTimeout(() => this.#response.destroy(), 5);
  }

  #finish(): void {
    this.#queue = this.#queue.then(() => {
      if (!this.#isOver) this.#response.end();
      this.#isOver = true;
    });
  }

  async #sendSlowly(bytes: Buffer, pieceBytes: number, delayMs: number): Promise<void> {
    for (let at = 0; at < bytes.length && !this.#response.destroyed; at += pieceBytes) {
      this.#response.write(bytes.subarray(at, at + pieceBytes));
      await sleep(delayMs);
    }
  }
}

/** Sends the fault if it replaces the whole response. @returns whether it did. */
export function answerFault(response: ServerResponse, fault: Fault | undefined, format: WireFormat): boolean {
  switch (fault?.kind) {
    case "status":
      sendStatus(response, fault, format);
      return true;
    case "text":
      response.writeHead(200, { "Content-Type": fault.contentType });
      response.end(fault.text);
      return true;
    case "reset":
      response.destroy();
      return true;
    case "silent":
      return true;
    default:
      return false;
  }
}

export function sendStatus(response: ServerResponse, status: StatusOptions, format: WireFormat): void {
  response.writeHead(status.code, {
    "Content-Type": format.mediaType,
    ...(status.retryAfterSeconds === undefined ? {} : { "Retry-After": String(status.retryAfterSeconds) }),
  });
  response.end(format.object(statusObject(status)));
}

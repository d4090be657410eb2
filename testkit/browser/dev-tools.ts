/** The Chrome DevTools Protocol over a web socket: calls with answers, and events by tab. */

type Params = Readonly<Record<string, unknown>>;
type Listener = (method: string, params: Params) => void;

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Params;
  readonly result?: Params;
  readonly error?: { readonly message: string };
  readonly sessionId?: string;
}

export class DevTools {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, PromiseWithResolvers<Params>>();
  readonly #listeners = new Map<string, Listener>();
  #last = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#onMessage(JSON.parse(String(data)) as Message));
    socket.addEventListener("close", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("the browser has gone"));
    });
  }

  static async connect(address: string): Promise<DevTools> {
    const socket = new WebSocket(address);
    await new Promise<void>((resolve, reject) => {
      socket.addEventListener("open", () => resolve());
      socket.addEventListener("error", () => reject(new Error(`cannot connect to ${address}`)));
    });
    return new DevTools(socket);
  }

  /** @param session a tab's; absent: the browser itself. Rejects with the browser's message. */
  async call(method: string, params: Params = {}, session?: string): Promise<Params> {
    this.#last += 1;
    const waiting = Promise.withResolvers<Params>();
    this.#waiting.set(this.#last, waiting);
    this.#socket.send(JSON.stringify({ id: this.#last, method, params, sessionId: session }));
    return await waiting.promise;
  }

  onEvent(session: string, listener: Listener): void {
    this.#listeners.set(session, listener);
  }

  close(): void {
    this.#socket.close();
  }

  #onMessage({ id, method, params = {}, result = {}, error, sessionId = "" }: Message): void {
    if (id === undefined) {
      if (method !== undefined) this.#listeners.get(sessionId)?.(method, params);
      return;
    }
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) waiting?.resolve(result);
    else waiting?.reject(new Error(error.message));
  }
}

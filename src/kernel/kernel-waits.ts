/** How long a sync has waited for the kernel and its tools. Waits that overlap count once, so the sum is never more than the time. */

export class KernelWaits {
  readonly #nowMs: () => number;
  #open = 0;
  #sinceMs = 0;
  #sumMs = 0;

  /** @param nowMs monotonic. @default performance.now */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** Begins to count: what is waited for already counts from here. */
  begin(): void {
    this.#sumMs = 0;
    this.#sinceMs = this.#nowMs();
  }

  /** Milliseconds since {@link begin} in which something was waited for. */
  get ms(): number {
    return this.#sumMs + (this.#open > 0 ? this.#nowMs() - this.#sinceMs : 0);
  }

  /**
   * The same object, whose waits are counted. Its other members are as they are.
   *
   * @param untimed methods that do something else for long, such as watching.
   */
  timed<T extends object>(target: T, ...untimed: readonly (keyof T)[]): T {
    const others = new Set<string | symbol | number>(untimed);
    return new Proxy(target, {
      get: (object, name): unknown => {
        const member: unknown = Reflect.get(object, name, object);
        if (typeof member !== "function") return member;
        if (others.has(name)) return member.bind(object);
        return (...args: readonly unknown[]) => this.#wait(() => Reflect.apply(member, object, args));
      },
    });
  }

  #wait(work: () => unknown): unknown {
    if (this.#open === 0) this.#sinceMs = this.#nowMs();
    this.#open += 1;
    let isPromise = false;
    try {
      const result = work();
      if (!(result instanceof Promise)) return result;
      isPromise = true;
      return result.finally(() => this.#end());
    } finally {
      if (!isPromise) this.#end();
    }
  }

  #end(): void {
    this.#open -= 1;
    if (this.#open === 0) this.#sumMs += this.#nowMs() - this.#sinceMs;
  }
}

/** How long a sync has waited for the kernel and its tools. Overlapping waits count once, so the sum never exceeds the elapsed time. */

export class KernelWaits {
  readonly #nowMs: () => number;
  #open = 0;
  #sinceMs = 0;
  #sumMs = 0;

  /** @param nowMs monotonic. @default performance.now */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** Starts counting. Waits already under way count from here. */
  begin(): void {
    this.#sumMs = 0;
    this.#sinceMs = this.#nowMs();
  }

  /** Milliseconds spent waiting since {@link begin}. */
  get ms(): number {
    return this.#sumMs + (this.#open > 0 ? this.#nowMs() - this.#sinceMs : 0);
  }

  /**
   * A proxy of the object that times its methods; other members stay as they are.
   *
   * @param untimed long-running methods that are not waits of a sync, such as watches.
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

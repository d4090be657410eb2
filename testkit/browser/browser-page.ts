/** One tab: navigates, waits for what it shows, takes input, and records its errors and requests. */
import { stretched } from "../support/patience.ts";
import type { DevTools } from "./dev-tools.ts";

const LIMIT_MS = 20_000;
const LOOK_EVERY_MS = 50;

/** A node of the accessibility tree, as a screen reader gets it. */
export interface AccessibleNode {
  readonly role: string;
  readonly name: string;
  /** For a heading. */
  readonly level: number | undefined;
  readonly isFocusable: boolean;
}

export class BrowserPage {
  readonly #tools: DevTools;
  readonly #session: string;
  readonly #target: string;
  /** Errors of scripts and of the console, including violated security policies. */
  readonly complaints: string[] = [];
  /** All requests. */
  readonly requests: string[] = [];

  private constructor(tools: DevTools, target: string, session: string) {
    this.#tools = tools;
    this.#target = target;
    this.#session = session;
    tools.onEvent(session, (method, params) => {
      if (method === "Network.requestWillBeSent") this.requests.push(textAt(params, "request", "url"));
      if (method === "Runtime.exceptionThrown") this.complaints.push(JSON.stringify(params.exceptionDetails));
      if (method === "Log.entryAdded" && textAt(params, "entry", "level") === "error") {
        this.complaints.push(`${textAt(params, "entry", "text")} ${textAt(params, "entry", "url")}`);
      }
    });
  }

  static async open(tools: DevTools): Promise<BrowserPage> {
    const { targetId } = await tools.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await tools.call("Target.attachToTarget", { targetId, flatten: true });
    const page = new BrowserPage(tools, String(targetId), String(sessionId));
    for (const domain of ["Runtime", "Log", "Network", "Page", "Accessibility"]) await page.#call(`${domain}.enable`);
    return page;
  }

  async goto(url: string): Promise<void> {
    await this.#call("Page.navigate", { url });
  }

  /** @param scheme the reader's preference. */
  async look(width: number, height: number, scheme: "light" | "dark"): Promise<void> {
    await this.#call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.#call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  /** Closes the tab: an open one keeps sending requests. */
  async close(): Promise<void> {
    await this.#tools.call("Target.closeTarget", { targetId: this.#target });
  }

  /** The value of an expression in the page, as JSON. Rejects with what it throws. */
  async evaluate<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = await this.#call("Runtime.evaluate", {
      ...{ expression, returnByValue: true, awaitPromise: true },
    });
    if (exceptionDetails !== undefined) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return (result as { readonly value: T }).value;
  }

  /** Waits until an expression is true. Rejects with the page's content if it does not become so. */
  async until(expression: string): Promise<void> {
    const startMs = Date.now();
    // During navigation from one document to another there is none to ask.
    while (!(await this.evaluate<boolean>(`Boolean(${expression})`).catch(() => false))) {
      if (Date.now() - startMs > stretched(LIMIT_MS)) {
        const shown = await this.text("body").catch(String);
        throw new Error(`not in time: ${expression}\nThe page shows: ${shown}\n${this.complaints.join("\n")}`);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  }

  /** The visible text of the first matching element. */
  async text(selector: string): Promise<string> {
    return await this.evaluate<string>(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`);
  }

  /** Presses a key as on a keyboard. */
  async press(key: "Tab" | "Enter" | "Space" | "/" | "?" | "j" | "k"): Promise<void> {
    const codes = { Tab: 9, Enter: 13, Space: 32, "/": 191, "?": 191, j: 74, k: 75 };
    const text = key === "Tab" ? undefined : key === "Enter" ? "\r" : key === "Space" ? " " : key;
    const about = { code: key, key: key === "Space" ? " " : key, windowsVirtualKeyCode: codes[key] };
    await this.#call("Input.dispatchKeyEvent", { type: "keyDown", ...about, ...(text === undefined ? {} : { text }) });
    await this.#call("Input.dispatchKeyEvent", { type: "keyUp", ...about });
  }

  async type(text: string): Promise<void> {
    await this.#call("Input.insertText", { text });
  }

  /** What assistive technology gets, in document order. */
  async accessible(): Promise<readonly AccessibleNode[]> {
    const { nodes } = await this.#call("Accessibility.getFullAXTree");
    return (nodes as readonly AxNode[])
      .filter(({ ignored }) => !ignored)
      .map(({ role, name, properties = [] }) => {
        const property = (wanted: string) => properties.find((one) => one.name === wanted)?.value.value;
        const level = property("level");
        return {
          role: role?.value ?? "",
          name: name?.value ?? "",
          level: typeof level === "number" ? level : undefined,
          isFocusable: property("focusable") === true,
        };
      });
  }

  /** A PNG of the visible part. */
  async screenshot(): Promise<Buffer> {
    const { data } = await this.#call("Page.captureScreenshot", { format: "png" });
    return Buffer.from(String(data), "base64");
  }

  async #call(method: string, params: Readonly<Record<string, unknown>> = {}) {
    return await this.#tools.call(method, params, this.#session);
  }
}

interface AxNode {
  readonly ignored: boolean;
  readonly role?: { readonly value: string };
  readonly name?: { readonly value: string };
  readonly properties?: readonly { readonly name: string; readonly value: { readonly value?: unknown } }[];
}

function textAt(params: Readonly<Record<string, unknown>>, outer: string, inner: string): string {
  const value = params[outer];
  return typeof value === "object" && value !== null ? String((value as Record<string, unknown>)[inner] ?? "") : "";
}

/**
 * {@link HcnCalls} with the libraries of Windows. Calls are RPC to the HNS service, which take milliseconds to seconds; they run
 * on a worker thread, one at a time. This module frees the strings that HCN returns, error records included. Tested under Wine
 * with a library of this repository (`testkit/wine`), not on Windows. Reference windows-hcn.md §4.1, §4.7.
 */
import { Mutex } from "../../../async/mutex.ts";
import { type Koffi, type Library, systemLibrary, windowsKoffi } from "../../../kernel/windows/system-library.ts";
import { type Guid, guidBytes, ZERO_GUID } from "./guid.ts";
import type { HcnCalls, HcnHandle, HcnKind } from "./hcn-calls.ts";
import { GENERAL_FAILURE, HcnError } from "./hcn-error.ts";

/** The address of a string or an object that HCN allocated, or null. */
type Pointer = bigint | null;
type Out = [Pointer];

/** The prototypes of the functions whose names begin like this, by kind of object. */
const PROTOTYPES = {
  Enumerate: (kind: HcnKind) =>
    `int32_t __stdcall HcnEnumerate${kind}s(const char16_t *, _Out_ void **, _Out_ void **)`,
  Open: (kind: HcnKind) => `int32_t __stdcall HcnOpen${kind}(const uint8_t *, _Out_ void **, _Out_ void **)`,
  Query: (kind: HcnKind) =>
    `int32_t __stdcall HcnQuery${kind}Properties(void *, const char16_t *, _Out_ void **, _Out_ void **)`,
  Close: (kind: HcnKind) => `int32_t __stdcall HcnClose${kind}(void *)`,
  Delete: (kind: HcnKind) => `int32_t __stdcall HcnDelete${kind}(const uint8_t *, _Out_ void **)`,
} as const;
const CREATE_ENDPOINT =
  "int32_t __stdcall HcnCreateEndpoint(void *, const uint8_t *, const char16_t *, _Out_ void **, _Out_ void **)";
const CREATE_LOAD_BALANCER =
  "int32_t __stdcall HcnCreateLoadBalancer(const uint8_t *, const char16_t *, _Out_ void **, _Out_ void **)";
const MODIFY_LOAD_BALANCER = "int32_t __stdcall HcnModifyLoadBalancer(void *, const char16_t *, _Out_ void **)";
const NOTIFICATION = "void __stdcall HcnNotification(uint32_t, void *, int32_t, const char16_t *)";
const REGISTER = "int32_t __stdcall HcnRegisterServiceCallback(void *, void *, _Out_ void **)";
const UNREGISTER = "int32_t __stdcall HcnUnregisterServiceCallback(void *)";
const HNS_CALL = "int32_t __stdcall HNSCall(const char16_t *, const char16_t *, const char16_t *, _Out_ void **)";

/** koffi registers prototypes by name, and each name only once. */
let notification: ReturnType<Koffi["pointer"]> | undefined;

/** Loads the libraries. @throws Error that says what Windows lacks. */
export function openHcn(): HcnCalls {
  const hcn = load("computenetwork.dll");
  const hns = load("vmcompute.dll");
  const free = load("ole32.dll").func("void __stdcall CoTaskMemFree(void *)");
  return new ComputeNetwork(windowsKoffi(), { hcn, hns }, (pointer) => free(pointer));
}

function load(name: string): Library {
  try {
    return systemLibrary(name);
  } catch (error) {
    const advice =
      "it needs Windows Server 2019 or newer with the feature Containers (Install-WindowsFeature Containers)";
    throw new Error(`cannot open ${name}, which kernelspace mode needs to access HNS; ${advice}`, { cause: error });
  }
}

/** A C function that is called on a worker thread. */
interface Callable {
  // koffi checks arguments against the prototype.
  async(...args: readonly unknown[]): void;
}

class ComputeNetwork implements HcnCalls {
  readonly #koffi: Koffi;
  readonly #libraries: { readonly hcn: Library; readonly hns: Library };
  readonly #free: (pointer: bigint) => void;
  readonly #turns = new Mutex();
  readonly #functions = new Map<string, Callable>();

  constructor(koffi: Koffi, libraries: { hcn: Library; hns: Library }, free: (pointer: bigint) => void) {
    this.#koffi = koffi;
    this.#libraries = libraries;
    this.#free = free;
  }

  async enumerate(kind: HcnKind, query: string): Promise<string> {
    const [ids, error] = [none(), none()];
    await this.#call("hcn", PROTOTYPES.Enumerate(kind), [query, ids, error], error, ids);
    return this.#text(ids);
  }

  async open(kind: HcnKind, id: Guid): Promise<HcnHandle> {
    const [handle, error] = [none(), none()];
    await this.#call("hcn", PROTOTYPES.Open(kind), [guidBytes(id), handle, error], error);
    return handleOf(handle);
  }

  async query(kind: HcnKind, handle: HcnHandle, query: string): Promise<string> {
    const [properties, error] = [none(), none()];
    await this.#call("hcn", PROTOTYPES.Query(kind), [handle, query, properties, error], error, properties);
    return this.#text(properties);
  }

  async close(kind: HcnKind, handle: HcnHandle): Promise<void> {
    await this.#call("hcn", PROTOTYPES.Close(kind), [handle], none());
  }

  async createEndpoint(network: HcnHandle, settings: string): Promise<HcnHandle> {
    const [handle, error] = [none(), none()];
    await this.#call("hcn", CREATE_ENDPOINT, [network, guidBytes(ZERO_GUID), settings, handle, error], error);
    return handleOf(handle);
  }

  async createLoadBalancer(settings: string): Promise<HcnHandle> {
    const [handle, error] = [none(), none()];
    await this.#call("hcn", CREATE_LOAD_BALANCER, [guidBytes(ZERO_GUID), settings, handle, error], error);
    return handleOf(handle);
  }

  async modifyLoadBalancer(handle: HcnHandle, settings: string): Promise<void> {
    const error = none();
    await this.#call("hcn", MODIFY_LOAD_BALANCER, [handle, settings, error], error);
  }

  async delete(kind: HcnKind, id: Guid): Promise<void> {
    const error = none();
    await this.#call("hcn", PROTOTYPES.Delete(kind), [guidBytes(id), error], error);
  }

  async hnsCall(method: string, path: string, body: string): Promise<string> {
    const response = none();
    await this.#call("hns", HNS_CALL, [method, path, body, response], none(), response);
    return this.#text(response);
  }

  /** HNS calls back on its own thread, which waits until the event loop has run the function. */
  async watch(onNotice: (type: number) => void): Promise<() => Promise<void>> {
    const koffi = this.#koffi;
    notification ??= koffi.pointer(koffi.proto(NOTIFICATION));
    const callback = koffi.register((type: number): void => onNotice(type), notification);
    const handle = none();
    try {
      await this.#call("hcn", REGISTER, [callback, null, handle], none());
    } catch (error) {
      koffi.unregister(callback);
      throw error;
    }
    return async () => {
      // After a restart HNS may no longer know the registration.
      await this.#call("hcn", UNREGISTER, [handleOf(handle)], none()).catch(() => {});
      koffi.unregister(callback);
    };
  }

  /** @param made the string that the call returns if it succeeds; freed if it fails. */
  async #call(
    library: "hcn" | "hns",
    prototype: string,
    args: readonly unknown[],
    error: Out,
    made?: Out,
  ): Promise<void> {
    const name = nameOf(prototype);
    const callable = this.#function(library, prototype, name);
    const hresult = await this.#turns.run(
      () =>
        new Promise<number>((resolve, reject) => {
          callable.async(...args, (failure: Error | null, result: number) => {
            if (failure === null) resolve(result);
            else reject(failure);
          });
        }),
    );
    const record = this.#text(error);
    if (hresult >= 0 && record === "") return;
    if (made !== undefined) this.#text(made);
    throw new HcnError(name, hresult < 0 ? hresult : GENERAL_FAILURE, record);
  }

  #function(library: "hcn" | "hns", prototype: string, name: string): Callable {
    let known = this.#functions.get(name);
    if (known === undefined) {
      try {
        known = this.#libraries[library].func(prototype);
      } catch {
        throw new HcnError(name, NOT_IMPLEMENTED, "");
      }
      this.#functions.set(name, known);
    }
    return known;
  }

  /** Reads and frees a string that HCN allocated. */
  #text(out: Out): string {
    const [pointer] = out;
    if (pointer === null) return "";
    try {
      return String(this.#koffi.decode(pointer, "char16_t", -1));
    } finally {
      this.#free(pointer);
    }
  }
}

/** E_NOTIMPL: an older library lacks the function. */
const NOT_IMPLEMENTED = 0x8000_4001 | 0;

const none = (): Out => [null];

function nameOf(prototype: string): string {
  return /(\w+)\(/.exec(prototype)?.[1] ?? prototype;
}

function handleOf([pointer]: Out): HcnHandle {
  if (pointer === null) throw new Error("HCN returned no handle");
  return pointer;
}

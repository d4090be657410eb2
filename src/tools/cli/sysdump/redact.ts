/** Removes secrets from JSON and YAML: by the names of fields, and in texts by their form. If in doubt, it removes too much. */
import { LEFT_OUT, withoutSecrets, withoutUserInfo } from "../../../logging/secrets.ts";

/** Fields whose value is a secret, or a certificate. */
const SECRET_FIELD =
  /token|passw|passphrase|^pass$|pwd|^otp$|secret|credential|authorization|cookie|private|bearer|signature|key$|data$|^extensions$|^annotations$|^as-user-extra$|^auth-?provider$/i;
/** Fields with a URL, whose user name and password may have any character. */
const URL_FIELD = /^(?:server|master|proxy-?url)$|_proxy$/i;
/** Fields that name the file with the secret. */
const FILE_FIELD = /^(?:tokenFile|client-key|client-certificate|certificate-authority|tls[a-z]*File)$/i;
const PATH = /^[./][\w./@:+-]{0,200}$/;

/**
 * A value of JSON or YAML without secrets: those in fields with telling names, in an exec plugin's environment and arguments, in an
 * `auth-provider`, and in any text where {@link withoutSecrets} finds them.
 */
export function redacted(value: unknown, field = ""): unknown {
  if (FILE_FIELD.test(field) && typeof value === "string" && PATH.test(value)) return value;
  if (SECRET_FIELD.test(field) && value !== null && value !== "" && typeof value !== "boolean") return LEFT_OUT;
  if (URL_FIELD.test(field) && typeof value === "string") return withoutSecrets(withoutUserInfo(value, `${LEFT_OUT}@`));
  if (field === "exec" && typeof value === "string") return LEFT_OUT;
  if (field === "args" || (field === "env" && !Array.isArray(value))) return sizeOf(value);
  if (field === "env" && Array.isArray(value)) return value.map(environmentName);
  if (Array.isArray(value)) return value.map((item) => redacted(item));
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [withoutSecrets(name), redacted(item, name)]),
    );
  }
  return typeof value === "string" ? withoutSecrets(value) : value;
}

const sizeOf = (value: unknown): unknown =>
  Array.isArray(value) ? (value.length === 0 ? [] : [`${value.length} ${LEFT_OUT}`]) : LEFT_OUT;

function environmentName(item: unknown): unknown {
  const name = typeof item === "object" && item !== null && "name" in item ? item.name : undefined;
  return typeof name === "string" ? { name: withoutSecrets(name), value: LEFT_OUT } : LEFT_OUT;
}

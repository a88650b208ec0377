// A laboratory's state as text, for an address or a letter.

const EDITION = 1;

const to_bytes = (text) => new TextEncoder().encode(text);

// → "1.eyJ3b3Js…": the edition, then the description in base64 that needs no escape.
export function written(description) {
  const letters = Array.from(to_bytes(JSON.stringify(description)), (byte) =>
    String.fromCharCode(byte),
  ).join("");
  const coded = btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${EDITION}.${coded}`;
}

// The text of a description again, or an Error with a sentence. What it says is not yet believed.
export function unwritten(text) {
  const found = /^(\d{1,6})\.([\w-]{1,20000})$/.exec(text.trim());
  if (!found) throw new Error("This is no state of a laboratory: it should look like 1.eyJ3b3…");
  if (Number(found[1]) !== EDITION)
    throw new Error(
      `This state is of edition ${found[1]}, and the laboratory reads edition ${EDITION}`,
    );
  try {
    const letters = atob(found[2].replaceAll("-", "+").replaceAll("_", "/"));
    return new TextDecoder("utf-8", { fatal: true }).decode(
      Uint8Array.from(letters, (one) => one.charCodeAt(0)),
    );
  } catch {
    throw new Error("This state is damaged: a part of it is missing or was changed");
  }
}

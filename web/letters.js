// Widths of letters, in parts of the size of the type: so a picture is laid out where there is no page to measure text on.
// A sans serif of ordinary width (Helvetica's and Inter's lie within a few parts in a hundred of these).

const NARROW = "ijl.,:;'|!I()[]{}/\\ ft`\"°·", WIDE = "mwMW@%—…", CAPITALS = "ABCDEFGHJKLNOPQRSTUVXYZ&";
const MONO = 0.602;

// A page measures with its own type, which may be wider (DejaVu's and Verdana's are).
/** @type {any} */
let pen = null;
let family = "";
export function measureOn(page) {
  pen = page.createElement("canvas").getContext("2d");
  family = getComputedStyle(page.body).fontFamily;
}

export function width(text, size, isMono = false, isBold = false) {
  if (pen && !isMono) {
    pen.font = `${isBold ? 600 : 400} ${size}px ${family}`;
    return pen.measureText(text).width;
  }
  let total = 0;
  for (const letter of text) total += isMono ? (letter.codePointAt(0) > 0x2e80 ? 2 * MONO : MONO) : part(letter);
  return total * size * (isBold ? 1.06 : 1);
}

function part(letter) {
  if (NARROW.includes(letter)) return 0.31;
  if (WIDE.includes(letter)) return 0.86;
  if (CAPITALS.includes(letter)) return 0.67;
  if (letter >= "0" && letter <= "9") return 0.575;
  return letter.codePointAt(0) > 0x2e80 ? 1.05 : 0.545;
}

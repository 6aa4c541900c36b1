// All text that is seen, with the contrast to what is behind it; weak: less than 4.5 : 1 (WCAG AA).
() => {
  const numbers = (colour) => (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const opacity = (element) => {
    let all = 1;
    for (let each = element; each; each = each.parentElement) all *= Number(getComputedStyle(each).opacity);
    return all;
  };
  const weak = new Set();
  let checked = 0;
  const walker = document.createTreeWalker(document.getElementById('page'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest('button:disabled, option')) continue;
    const isDrawn = element.closest('svg');
    const ink = numbers(getComputedStyle(element)[isDrawn ? 'fill' : 'color']).slice(0, 3);
    const paper = behind(isDrawn ? document.querySelector('.sheet') : element).slice(0, 3);
    const share = opacity(element);
    const mixed = ink.map((value, at) => value * share + paper[at] * (1 - share));
    const [high, low] = [light(mixed), light(paper)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    checked++;
    if (ratio < 4.5) weak.add(`${element.tagName}.${element.getAttribute('class')} ${ratio.toFixed(2)} ${text.slice(0, 20)}`);
  }
  return { weak: [...weak].slice(0, 12), checked };
}

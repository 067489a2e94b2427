// Every visible text of the page whose contrast with what is behind it is below WCAG AA: 4.5, or 3 for large text.
() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const parsed = (text) => {
    if (!known.has(text)) {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = text;
      paint.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const light = (rgb) => {
    const [r, g, b] = rgb.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ancestors = (element) => {
    const all = [];
    for (let one = element; one !== null; one = one.parentElement) all.push(one);
    return all;
  };
  const behind = (element) =>
    ancestors(element).reduceRight((under, one) => over(parsed(getComputedStyle(one).backgroundColor), under), [255, 255, 255]);
  const isExempt = (element) =>
    element.closest(":disabled, [aria-disabled=true], [aria-hidden=true], script, style, title") !== null ||
    !element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  const found = new Map();
  const judge = (element, style, text) => {
    const under = behind(element);
    const faded = ancestors(element).reduce((share, one) => share * Number(getComputedStyle(one).opacity), 1);
    const [r, g, b, a] = parsed(style.color);
    const [one, two] = [light(over([r, g, b, a * faded], under)), light(under)];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) {
      const name = element.tagName.toLowerCase() + [...element.classList].map((each) => `.${each}`).join("");
      found.set(`${name} ${style.color}`, `${ratio.toFixed(2)} ${name}: ${text.trim().slice(0, 40)}`);
    }
  };
  let judged = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement: element, data } = texts.currentNode;
    if (data.trim() === "" || element === null || isExempt(element)) continue;
    judge(element, getComputedStyle(element), data);
    judged += 1;
  }
  for (const input of document.querySelectorAll("input[placeholder], textarea[placeholder]")) {
    if (input.value === "" && !isExempt(input)) judge(input, getComputedStyle(input, "::placeholder"), input.placeholder);
  }
  return { judged, found: [...found.values()] };
}

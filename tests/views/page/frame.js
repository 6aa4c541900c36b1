// Of the frame on the map of a sheet: whether its left, right, top and bottom are drawn.
() => {
  const canvas = document.querySelector('.minimap');
  const { width, height } = canvas;
  const pen = canvas.getContext('2d');
  const isBlue = (x, y) => {
    const [red, , blue, alpha] = pen.getImageData(x, y, 1, 1).data;
    return alpha > 60 && blue > red + 60;
  };
  const column = (x) => [...Array(8).keys()].some((y) => isBlue(x, 4 + y));
  const row = (y) => isBlue(Math.floor(width / 2), y);
  const below = [...Array(height).keys()].slice(8);
  return [column(0) || column(1), column(width - 1) || column(width - 2), row(0) || row(1), below.some(row)];
}

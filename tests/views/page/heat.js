// The colours of the cells of the inner loop, by round, and how many points have the colour of the loss.
() => {
  const canvas = document.querySelectorAll('.heat')[1];
  const pen = canvas.getContext('2d');
  const left = 150;
  const wide = (canvas.width - left) / 7;
  const high = canvas.height / 3;
  const at = (round, row) => [...pen.getImageData(left + (round + 0.9) * wide, row * high + 3, 1, 1).data];
  const cells = [0, 1, 2, 3, 4, 5, 6].map((round) => [0, 1, 2].map((row) => at(round, row)));
  const { data } = pen.getImageData(left, 0, canvas.width - left, canvas.height);
  const loss = getComputedStyle(document.documentElement).getPropertyValue('--loss').match(/\w\w/g);
  const [red, green, blue] = loss.map((part) => parseInt(part, 16));
  let drawn = 0;
  for (let point = 0; point < data.length; point += 4) {
    const apart = Math.abs(data[point] - red) + Math.abs(data[point + 1] - green) + Math.abs(data[point + 2] - blue);
    if (apart < 24) drawn++;
  }
  return [cells, drawn];
}

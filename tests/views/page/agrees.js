// Clicks what there is to click, and says where panes do not agree.
() => {
  const app = torchglass, wrong = [];
  const check = (how, event) => {
    const item = app.model.itemOf.get(app.selected), row = document.querySelector('.steps .row.selected');
    const box = document.querySelector('.sheet .selected'), title = document.querySelector('.details header .dim').textContent;
    const line = document.querySelector('.code .line.selected'), at = app.model.samples[app.model.events.sample[app.selected]].at;
    if (event >= 0 && app.selected !== event) wrong.push([how, event, 'selected', app.selected]);
    if (!row || Number(row.dataset.item) !== item.number) wrong.push([how, event, 'row']);
    if (!box || Number(box.dataset.item) !== item.number) wrong.push([how, event, 'box']);
    if (title !== '#' + app.selected) wrong.push([how, event, 'details', title]);
    if (at && at.file >= 0 && (!line || Number(line.dataset.line) !== at.line)) wrong.push([how, event, 'line']);
  };
  const click = (element) => element.dispatchEvent(new MouseEvent('click', {bubbles: true}));
  let clicked = 0;
  for (let turn = 0; turn < 4; turn++) app.openAll();
  for (const {item} of app.panes.steps.rows().slice(0, 150)) {
    if (!item.nodes.length) continue;
    document.querySelector('.rows').scrollTop = 23 * app.panes.steps.rows().findIndex((row) => row.item === item);
    document.querySelector('.rows').dispatchEvent(new Event('scroll'));
    const row = document.querySelector(`.row[data-item="${item.number}"]`);
    if (!row) { wrong.push(['no row', item.number]); continue; }
    const event = app.eventOf(item);
    click(row); clicked++; check('row', event);
  }
  for (const box of [...document.querySelectorAll('.sheet .box[data-item]')].slice(0, 150)) {
    const item = app.model.items[box.dataset.item], event = app.eventOf(item);
    if (event < 0) continue;
    click(document.querySelector(`.sheet .box[data-item="${item.number}"]`)); clicked++; check('box', event);
  }
  for (const number of [...document.querySelectorAll('.code .line.ran')].slice(0, 60).map((line) => line.dataset.line)) {
    const line = document.querySelector(`.code .line.ran[data-line="${number}"]`);
    if (!line) continue;
    click(line); clicked++; check('line', -1);
    const at = app.model.samples[app.model.events.sample[app.selected]].at;
    if (at.line !== Number(number)) wrong.push(['line', number, 'at', at.line]);
  }
  for (const event of [...app.model.itemOf.keys()].slice(0, 60)) {
    app.select(event);
    for (let at = 0; at < document.querySelectorAll('.details .step').length && at < 3; at++) {
      click(document.querySelectorAll('.details .step')[at]); clicked++; check('value', -1);
      app.select(event);
    }
  }
  return {wrong: wrong.slice(0, 10), clicked};
}

// Built from web/ by `make page`. Do not edit.
const in_dom = (() => {
const SVG="http://www.w3.org/2000/svg";
function h(tag,properties,...children){
const element=document.createElement(tag);
for(const[name,value]of Object.entries(properties||{})){
if(value===undefined||value===null||value===false)continue;
if(name.startsWith("on"))element.addEventListener(name.slice(2),value);
else if(name==="style")element.style.cssText=value;
else element.setAttribute(name,value===true?"":String(value))}
put(element,children);
return(element)}
function put(element,children){
const flat=(children).flat(Infinity);
for(const child of flat){
if(child===null||child===undefined||child===false||child==="")continue;
element.append(child instanceof Node?child:document.createTextNode(safe(String(child))))}}
function fill(element,...children){
element.replaceChildren();
put(element,children)}
function link(app,event,properties,...children){
const onclick=(click)=>{
if(click.ctrlKey||click.metaKey||click.shiftKey)return;
click.preventDefault();
app.select(event)};
return h("a",{href:`#event=${event}`,onclick,...properties},children)}
function safe(text){
const spelt=(letter)=>"\\u"+(letter.codePointAt(0)||0).toString(16).padStart(4,"0");
return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,spelt)}
function svgElement(mark){
const element=document.createElementNS(SVG,mark.t);
const set=(name,value)=>{
if(value!==undefined)element.setAttribute(name,String(value))};
set("class",mark.c);
if(mark.t==="path"){
set("d",mark.d);
if(mark.arrow)set("marker-end","url(#arrow)")}else if(mark.t==="circle"){
set("cx",mark.x);
set("cy",mark.y);
set("r",mark.r)}else{
set("x",mark.x);
set("y",mark.y)}
if(mark.t==="rect"){
set("width",mark.w);
set("height",mark.h);
set("rx",mark.r)}
if(mark.t==="text"){
set("text-anchor",mark.anchor);
element.textContent=safe(mark.s||"")}
set("data-item",mark.item);
set("data-toggle",mark.toggle);
set("data-edge",mark.edge);
return element}
function duration(ticks,tick){
if(ticks<0)return "—";
const ns=ticks*tick;
const units=[["ns",1],["µs",1e3],["ms",1e6]];
for(const[unit,size]of units){
if(ns / size<999.5)return `${three(ns / size)} ${unit}`}
return `${three(ns / 1e9)} s`}
function three(number){
if(number>=99.95)return number.toFixed(0);
return number>=9.995?number.toFixed(1):number.toFixed(2)}
function count(number){
return number.toLocaleString("en")}
return { h, put, fill, link, safe, svgElement, duration, count };
})();
const in_code = (() => {
const{sampleOf}=in_data;
const{fill,h,safe}=in_dom;
const WORDS=new Set("and as assert async await break class continue def del elif else except finally for from global if import in is lambda None nonlocal not or pass raise return try while with yield True False self".split(" "));
const TOKEN= /(#.*)|("""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;
function makeCode(app,pane){
const choose=()=>{
showFile(Number(chooser.value));
dim(app.found?linesOf(app.found.events):null)};
const chooser=(h("select",{"aria-label":"file",onchange:choose}));
const path=h("span",{class:"dim path"}),steps=h("span",{class:"rounds"});
const lines=h("div",{class:"lines",tabindex:0});
pane.append(h("header",{},chooser,path,h("span",{class:"grow"}),steps),lines);
app.model.files.forEach((file,at)=>chooser.append(h("option",{value:at},file.name.split("/").pop())));
if(!app.model.files.length){chooser.remove();fill(lines,h("p",{class:"nothing"},"No source text was kept."));}
let shown=-1,rowOf=new Map(),marked=[];
const known=new Map();
function showFile(number){
if(number===shown||number<0)return;
const file=app.model.files[number];
shown=number;
chooser.value=String(number);
path.textContent=file.name.includes("/")?safe(file.name):"";
path.title=safe(file.path);
if(!known.has(number))known.set(number,fileRows(file));
rowOf=known.get(number).rowOf;
lines.replaceChildren(...known.get(number).rows)}
function fileRows(file){
const rows=[];
let last=0;
rowOf=new Map();
for(const piece of file.pieces){
if(piece.first>last+1)rows.push(h("div",{class:"skipped"},`⋯ ${piece.first - last - 1} lines`));
piece.lines.forEach((text,offset)=>rows.push(codeRow(file,piece.first+offset,text)));
last=piece.first+piece.lines.length-1}
return{rows,rowOf}}
function pick(line){
const marked=getSelection();
if(!marked||marked.isCollapsed)app.selectLine(shown,line)}
function codeRow(file,line,text){
const margin=file.margins.get(line),isError=margin&&margin.word.includes("✗");
const source=h("code",{class:"source"},coloured(text));
const row=h("div",{class:"line"+(margin?" ran":"")+(margin&&margin.isBad?" bad":"")+ " "+app.diff.lineState(shown,line),"data-line":line,onclick:margin?()=>pick(line):undefined},
h("span",{class:"number"},app.marks.ofLine(shown,line),line),h("span",{class:"times"},margin&&margin.times>1?timesWord(margin.times):""),source,margin&&h("code",{class:isError?"error":"shape"},margin.alarm?h("span",{class:margin.isBad?"alarm bad":"alarm"},margin.alarm):"",marginWords(margin.word)));
rowOf.set(line,{row,source,text});
return row}
function linesOf(events){
const found=new Map();
for(const sample of new Set([...events].map((event)=>sampleOf(app.model,event)))){
if(!sample.at||sample.at.file<0)continue;
if(!found.has(sample.at.file))found.set(sample.at.file,new Set());
for(let line=sample.at.line;line<=sample.at.endLine;line++)found.get(sample.at.file).add(line)}
return found}
let isDimmed=false;
function dim(hits){
if(!hits&&!isDimmed)return;
isDimmed=!!hits;
const here=hits?hits.get(shown):null;
for(const[line,{row}]of rowOf)row.classList.toggle("hit",!!here&&here.has(line))}
return{
show(file,line){
showFile(file);
const found=rowOf.get(line);
if(found)lines.scrollTop=Math.max(0,found.row.offsetTop-lines.clientHeight / 3)},
draw(isFollowed){
for(const{row,source,text}of marked){row.classList.remove("selected","failed");fill(source,coloured(text));}
marked=[];
const at=app.selected>=0?sampleOf(app.model,app.selected).at:null;
steps.replaceChildren(...app.lineButtons());
const hits=app.found?linesOf(app.found.events):null;
lines.classList.toggle("searched",!!hits&&hits.size>0);
if(hits&&hits.size&&app.selected<0)showFile([...hits.keys()][0]);
dim(hits);
if(!at||at.file<0){if(shown<0&&app.model.files.length)showFile(0);return;}
showFile(at.file);
dim(hits);
for(let line=at.line;line<=at.endLine;line++){
const found=rowOf.get(line);
if(!found)continue;
found.row.classList.add("selected");
if(sampleOf(app.model,app.selected).error)found.row.classList.add("failed");
marked.push(found);
const from=line===at.line?at.col:found.text.search(/\S|$/),to=line===at.endLine?at.endCol:found.text.length;
fill(found.source,coloured(found.text.slice(0,from)),h("mark",{},coloured(found.text.slice(from,to))),coloured(found.text.slice(to)))}
const first=rowOf.get(at.line);
if(first&&isFollowed){
const top=first.row.offsetTop;
if(top<lines.scrollTop+20||top>lines.scrollTop+lines.clientHeight-60)lines.scrollTop=Math.max(0,top-lines.clientHeight / 3)}},}}
function marginWords(word){
const at=word.indexOf("✗");
return at<0?word:[word.slice(0,at),h("span",{class:"alarm bad"},word.slice(at))]}
function timesWord(times){
if(times<10_000)return times+"×";
return times<1e6?Math.floor(times / 1000)+ "k×":Math.floor(times / 1e6)+ "M×"}
function coloured(text){
const found=[];
let last=0;
for(const match of text.matchAll(TOKEN)){
const kind=match[1]?"comment":match[2]?"string":match[3]?"digits":WORDS.has(match[4])?"word":"";
if(!kind)continue;
found.push(text.slice(last,match.index),h("span",{class:kind},match[0]));
last=match.index+match[0].length}
found.push(text.slice(last));
return found}
return { makeCode, coloured };
})();
const in_steps = (() => {
const{sampleOf}=in_data;
const{fill,h}=in_dom;
const ROW=23;
const INDENT=14;
const DEEPEST=30;
const BEYOND=8;
function stepRows(app){
const{model,open,found}=app;
const rows=[];
const walk=(items,depth)=>{
for(const item of items){
if(found&&!found.items.has(item.number))continue;
rows.push({item,depth});
const isOpen=open.has(item.number)||(found&&found.around.has(item.number));
if(item.children.length&&isOpen)walk(item.children,depth+1)}};
walk(model.top.filter((item)=>app.shows(item)),0);
return rows}
function makeSteps(app,pane){
const space=h("div",{class:"space",role:"presentation"});
const list=h("div",{class:"rows",tabindex:0,role:"tree","aria-label":"steps"},space);
const title=h("span",{class:"dim"});
const openAll=h("button",{title:"open all levels","aria-label":"open all levels",onclick:()=>app.openAll()},"⊞");
const closeAll=h("button",{title:"close all","aria-label":"close all",onclick:()=>app.closeAll()},"⊟");
pane.append(h("header",{},h("b",{},"Steps"),title,h("span",{class:"grow"}),openAll,closeAll),list);
let rows=[];
function paint(){
const first=Math.max(0,Math.floor(list.scrollTop / ROW)- BEYOND);
const last=Math.min(rows.length,first+Math.ceil((list.clientHeight||800)/ ROW)+ 2*BEYOND);
space.style.height=`${rows.length * ROW}px`;
fill(space,rows.slice(first,last).map((row,at)=>stepRow(app,row,first+at)));
if(!rows.length)fill(space,h("p",{class:"nothing"},app.found?"Nothing matches.":app.emptyWord()));
const selected=space.querySelector(".row.selected");
if(selected)list.setAttribute("aria-activedescendant",selected.id);
else list.removeAttribute("aria-activedescendant")}
function follow(){
const at=rows.findIndex((row)=>row.item===app.item);
const top=at*ROW;
const height=list.clientHeight||400;
const isHidden=top<list.scrollTop+ROW||top>list.scrollTop+height-2*ROW;
if(at>=0&&isHidden)list.scrollTop=Math.max(0,top-height / 3)}
list.addEventListener("scroll",paint);
new ResizeObserver(paint).observe(list);
return{
rows:()=>rows,
draw(isFollowed){
rows=stepRows(app);
const{model,found}=app;
const whole=found?` · ${found.count.toLocaleString("en")} found`:` of ${model.events.size.toLocaleString("en")} events`;
title.textContent=`${rows.length.toLocaleString("en")} rows${whole}`;
space.style.height=`${rows.length * ROW}px`;
if(isFollowed)follow();
paint()},}}
function stepRow(app,{item,depth},at){
const{model}=app;
const event=app.eventOf(item);
const sample=event>=0?sampleOf(model,event):null;
const isFailed=model.failing.has(item.number);
const isSelected=item===app.item;
const classes=["row"];
if(isSelected)classes.push("selected");
else classes.push(app.near.get(item.number)||"");
if(isFailed)classes.push("failed");
classes.push(app.trail.stateOf(item),app.diff.stateOf(item));
if(app.found&&!app.found.hits.has(item.number))classes.push("faint");
const hasInside=item.children.length>0;
const properties={
class:classes.filter(Boolean).join(" "),
id:`row-${item.number}`,
role:"treeitem",
"data-item":item.number,
"aria-level":depth+1,
"aria-expanded":hasInside?String(app.open.has(item.number)):undefined,
"aria-selected":String(isSelected),
style:`top:${at * ROW}px;padding-left:${10 + Math.min(depth, DEEPEST) * INDENT}px`,
onclick:()=>app.selectItem(item),
ondblclick:()=>app.toggle(item),};
return h("div",properties,chevron(app,item),h("i",{class:`dot ${item.hue}`}),h("span",{class:"label"},name(item,sample)),
item.where&&h("span",{class:"only where",title:item.where},item.where),item.often&&h("span",{class:"often"},item.often),item.only&&h("span",{class:"only",title:item.only},item.only),app.marks.ofRow(item),gives(item,sample,isFailed))}
function chevron(app,item){
let state="";
if(item.children.length)state=app.open.has(item.number)?" open":" closed";
const toggle=(click)=>{
click.stopPropagation();
app.toggle(item)};
return h("i",{class:`chevron${state}`,onclick:toggle})}
function name(item,sample){
const isLayer=(sample&&sample.kind==="module")||item.kind==="repeat"||item.kind==="library";
if(isLayer)return[h("b",{},item.title||"repeat"),h("span",{class:"dim"},item.detail)];
return[h("code",{},item.code||item.title)]}
function gives(item,sample,isFailed){
if(isFailed&&sample&&sample.error)return h("span",{class:"error"},`✗ ${sample.error.split(":")[0]}`);
return h("code",{class:"shape"},item.gives)}
return { stepRows, makeSteps };
})();
const in_minimap = (() => {
const{h}=in_dom;
const WIDEST=150;
const HIGHEST=190;
const LARGEST_PART=0.4;
const MUCH_LARGER=1.4;
const MOST_BOXES=3000;
function makeMinimap(go){
const canvas=(h("canvas",{class:"minimap","aria-hidden":true}));
let k=1;
canvas.hidden=true;
function follow(pointer){
const box=canvas.getBoundingClientRect();
go((pointer.clientX-box.left)/ k,(pointer.clientY-box.top)/ k)}
canvas.addEventListener("pointerdown",(down)=>{
canvas.setPointerCapture(down.pointerId);
follow(down)});
canvas.addEventListener("pointermove",(move)=>{
if(move.buttons)follow(move)});
function show(drawn,at,size){
const isLarge=drawn.w*at.k>size.w*MUCH_LARGER||drawn.h*at.k>size.h*MUCH_LARGER;
canvas.hidden=!isLarge;
if(!isLarge)return;
const widest=Math.min(WIDEST,size.w*LARGEST_PART);
const highest=Math.min(HIGHEST,size.h*LARGEST_PART);
k=Math.min(widest / drawn.w,highest / drawn.h);
const wide=Math.max(8,drawn.w*k);
const high=Math.max(8,drawn.h*k);
const ratio=window.devicePixelRatio||1;
canvas.width=wide*ratio;
canvas.height=high*ratio;
canvas.style.width=`${wide}px`;
canvas.style.height=`${high}px`;
const pen=(canvas.getContext("2d"));
const style=getComputedStyle(document.documentElement);
pen.scale(ratio,ratio);
pen.strokeStyle=style.getPropertyValue("--edge");
pen.lineWidth=0.5;
let boxes=0;
for(const mark of drawn.marks){
const isBox=mark.item!==undefined&&mark.t==="rect"&&!mark.c.startsWith("head");
if(!isBox||boxes++>MOST_BOXES)continue;
const{x=0,y=0,w=0,h:tall=0}=mark;
pen.fillStyle=style.getPropertyValue(mark.c.startsWith("group")?"--soft":mark.c.includes("failed")?"--red":"--stroke");
pen.fillRect(x*k,y*k,Math.max(1,w*k),Math.max(1,tall*k));
if(mark.c.startsWith("group"))pen.strokeRect(x*k,y*k,w*k,tall*k)}
pen.strokeStyle=style.getPropertyValue("--accent");
pen.lineWidth=1.5;
const within=(place,end)=>Math.max(1,Math.min(end-1,place*k));
const left=within(-at.x / at.k,wide);
const top=within(-at.y / at.k,high);
const right=within((size.w-at.x)/ at.k,wide);
const bottom=within((size.h-at.y)/ at.k,high);
pen.strokeRect(left,top,right-left,bottom-top)}
return{element:canvas,show}}
return { makeMinimap };
})();
const in_reach = (() => {
function reach(model,marks,item){
const into=new Map();
const from=new Map();
marks.forEach((mark,at)=>{
if(mark.from===undefined||mark.to===undefined||mark.out===undefined||mark.c.includes("hit"))return;
add(into,mark.to,at);
add(from,mark.from,at)});
const upEdges=new Set();
const downEdges=new Set();
const up=walk(item,into,(mark)=>mark.from??-1,(mark)=>mark.out??0,(mark)=>mark.into??0,upEdges);
const down=walk(item,from,(mark)=>mark.to??-1,(mark)=>mark.into??0,(mark)=>mark.out??0,downEdges);
return{up,down,upEdges,downEdges};
function walk(start,lines,far,farPort,nearPort,edges){
const seen=new Set();
const pending=[{at:start,side:"outside",port:-1}];
while(pending.length){
const{at,side,port}=(pending.pop());
for(const number of lines.get(at)||[]){
const mark=marks[number];
const end=far(mark);
const isInside=end!==at&&holds(at,end);
if(edges.has(number)||(isInside?side==="outside":side==="inside"))continue;
if(port>=0&&nearPort(mark)!==port)continue;
edges.add(number);
if(end<0)continue;
seen.add(end);
if(end!==at&&holds(end,at))pending.push({at:end,side:"outside",port:farPort(mark)});
else if(isOpen(end,lines))pending.push({at:end,side:"inside",port:farPort(mark)});
else pending.push({at:end,side:"outside",port:-1})}}
return seen}
function isOpen(number,lines){
return(lines.get(number)||[]).some((at)=>{
const mark=marks[at];
const other=mark.from===number?mark.to:mark.from;
return other!==undefined&&other!==number&&holds(number,other)})}
function holds(around,inner){
let at=inner;
while(at>=0){
at=model.items[at].parent;
if(at===around)return true}
return false}}
function add(map,key,at){
const there=map.get(key);
if(there)there.push(at);
else map.set(key,[at])}
return { reach };
})();
const in_flow = (() => {
const{scene}=in_graph;
const{h,svgElement}=in_dom;
const{svg}=in_picture;
const{makeMinimap}=in_minimap;
const{reach}=in_reach;
const SVG="http://www.w3.org/2000/svg";
const MOST_SEEN=400;
const MOST_MOVING=900;
const MOVING_MS=220;
const READABLE=0.75;
const SMALLEST=0.02;
const LARGEST=4;
const TOP=24;
function makeFlow(app,pane){
const title=h("span",{class:"dim"});
const rounds=h("span",{class:"rounds"});
const root=(document.createElementNS(SVG,"svg"));
const sheet=document.createElementNS(SVG,"g");
const about={class:"sheet",role:"group",tabindex:"0","aria-label":"data flow","aria-roledescription":"diagram"};
for(const[name,value]of Object.entries(about))root.setAttribute(name,value);
root.append(arrows(),sheet);
const minimap=makeMinimap((x,y)=>centre(x,y));
pane.append(
h("header",{},h("b",{},"Data flow"),title,h("span",{class:"grow"}),rounds,
button("+","larger",()=>zoom(1.25)),button("−","smaller",()=>zoom(0.8)),
button("fit","fit all of it",()=>fit()),button("svg","svg: save as a picture",()=>app.save("svg",svg(drawn)))),
root,minimap.element);
let drawn={w:0,h:0,marks:[],boxes:0};
let elements=[];
let at={x:20,y:20,k:1};
let isPlaced=false;
const size=()=>({w:root.clientWidth||600,h:root.clientHeight||600});
function move(){
sheet.setAttribute("transform",`translate(${at.x},${at.y}) scale(${at.k})`);
cull();
minimap.show(drawn,at,size())}
function zoom(factor,x=size().w / 2,y=size().h / 2){
const k=Math.min(LARGEST,Math.max(SMALLEST,at.k*factor));
at={k,x:x-((x-at.x)*k)/ at.k,y:y-((y-at.y)*k)/ at.k};
move()}
function centre(x,y){
const{w,h:height}=size();
at={k:at.k,x:w / 2-x*at.k,y:height / 2-y*at.k};
move()}
function fit(){
const{w,h:height}=size();
const k=Math.max(SMALLEST,Math.min(1,(w-48)/ drawn.w,(height-48)/ drawn.h));
at={k,x:Math.max((w-drawn.w*k)/ 2,TOP),y:TOP};
move()}
function begin(){
const{w}=size();
const k=Math.max(READABLE,Math.min(1,(w-48)/ drawn.w));
const first=drawn.marks.find((mark)=>mark.item!==undefined&&isBody(mark));
let x=(w-drawn.w*k)/ 2;
if(drawn.w*k>w-48&&first){
const box=sides(first);
x=Math.min(TOP,Math.max(w-TOP-drawn.w*k,w / 2-(box.x+box.w / 2)*k))}
at={k,x,y:TOP};
move()}
function cull(){
if(drawn.marks.length<MOST_SEEN*6)return;
const{w,h:height}=size();
const left=-at.x / at.k-400;
const top=-at.y / at.k-400;
const right=left+w / at.k+800;
const bottom=top+height / at.k+800;
elements.forEach((element,number)=>{
const{x,y,w:wide=200,h:high=20}=drawn.marks[number];
const isSeen=x===undefined||y===undefined||(x<right&&y<bottom&&x+wide>left&&y+high>top);
element.style.display=isSeen?"":"none"})}
function anchor(wanted){
const{w,h:height}=size();
const boxes=places(drawn);
if(wanted!==undefined&&boxes.has(wanted))return wanted;
const inSight=(number)=>{
const box=boxes.get(number);
if(!box)return false;
const x=(box.x+box.w / 2)*at.k+at.x;
const y=box.y*at.k+at.y;
return x>0&&x<w&&y>0&&y<height};
if(app.item&&inSight(app.item.number))return app.item.number;
for(const number of boxes.keys())if(inSight(number)&&stillThere(number))return number;
return -1}
function stillThere(number){
let item=app.model.items[app.model.items[number].parent];
while(item){
if(!app.open.has(item.number))return false;
item=app.model.items[item.parent]}
return true}
function nearest(boxes,number){
while(number>=0&&!boxes.has(number))number=app.model.items[number].parent;
return number}
function draw(wanted){
const before=places(drawn);
const was={...at};
const held=isPlaced?anchor(wanted):-1;
drawn=scene(app.model,{model:app.model,open:app.open,shows:app.shows});
title.textContent=`${drawn.boxes.toLocaleString("en")} boxes`;
elements=drawn.marks.map((mark)=>(svgElement(mark)));
sheet.replaceChildren(...elements,...app.marks.badges(drawn));
const now=places(drawn);
if(!isPlaced){
begin();
isPlaced=drawn.boxes>0&&root.clientWidth>0}else{
const kept=nearest(now,held);
const old=before.get(held);
const box=now.get(kept);
if(old&&box){
at={k:was.k,x:was.x+(old.x+old.w / 2-box.x-box.w / 2)*was.k,y:was.y+(old.y-box.y)*was.k}}
keepInSight();
move();
slide(before,now,was)}
light()}
function keepInSight(){
const{w,h:height}=size();
at.x=Math.min(w-80,Math.max(80-drawn.w*at.k,at.x));
at.y=Math.min(height-60,Math.max(60-drawn.h*at.k,at.y))}
function slide(before,now,was){
if(drawn.marks.length>MOST_MOVING||window.matchMedia("(prefers-reduced-motion: reduce)").matches)return;
elements.forEach((element,number)=>{
const mark=drawn.marks[number];
const of=mark.item??mark.of;
const old=of===undefined?undefined:before.get(of);
const box=of===undefined?undefined:now.get(of);
if(!old||!box){
element.animate([{opacity:0},{opacity:0,offset:0.4},{}],{duration:MOVING_MS});
return}
const x=(old.x*was.k+was.x-(box.x*at.k+at.x))/ at.k;
const y=(old.y*was.k+was.y-(box.y*at.k+at.y))/ at.k;
if(Math.hypot(x,y)<1)return;
element.animate([{transform:`translate(${x}px,${y}px)`},{transform:"none"}],{duration:MOVING_MS,easing:"ease-out"})})}
function light(isFollowed=false){
const selected=app.item?app.item.number:-1;
const{found}=app;
app.overlays.begin(drawn);
elements.forEach((element,number)=>{
const mark=drawn.marks[number];
if(mark.from!==undefined){
const isOwn=mark.from!==mark.to&&(mark.from===selected||mark.to===selected);
element.classList.toggle("lit",selected>=0&&isOwn)}
const of=mark.item??mark.of;
app.trail.mark(element,mark);
app.diff.mark(element,mark);
app.overlays.mark(element,mark);
if(of!==undefined)element.classList.toggle("faint",!!found&&!found.items.has(of));
if(mark.item===undefined||!isBody(mark))return;
element.classList.toggle("selected",mark.item===selected);
element.classList.toggle("near",app.near.has(mark.item))});
rounds.replaceChildren(...app.roundButtons());
root.setAttribute("aria-label",app.item?`data flow, ${app.item.title || app.item.code} selected`:"data flow");
if(isFollowed)show(selected)}
function show(selected){
const box=places(drawn).get(selected);
if(!box)return;
const{w,h:height}=size();
const x=(box.x+box.w / 2)*at.k+at.x;
const y=(box.y+Math.min(box.h / 2,60))*at.k+at.y;
if(x<40||x>w-40)at.x=filled(at.x+w / 2-x,w,drawn.w*at.k);
if(y<40||y>height-60)at.y=filled(at.y+height / 3-y,height,drawn.h*at.k);
move()}
function hover(item){
const found=item<0?null:reach(app.model,drawn.marks,item);
elements.forEach((element,number)=>{
const mark=drawn.marks[number];
const key=mark.from===undefined?mark.item:undefined;
const isUp=!!found&&(key===undefined?found.upEdges.has(number):found.up.has(key)&&isBody(mark));
const isDown=!!found&&(key===undefined?found.downEdges.has(number):found.down.has(key)&&isBody(mark));
element.classList.toggle("upstream",isUp);
element.classList.toggle("downstream",isDown&&!isUp)})}
moved(root,()=>at,(x,y)=>{
at={...at,x,y};
move()},zoom);
root.addEventListener("click",(click)=>{
const target=(click.target);
const toggle=target.getAttribute("data-toggle");
const item=target.getAttribute("data-item");
const edge=target.getAttribute("data-edge");
if(toggle!==null)app.toggle(app.model.items[Number(toggle)]);
else if(item!==null)app.selectItem(app.model.items[Number(item)]);
else if(edge!==null)app.selectEdge(drawn.marks[Number(edge)])});
root.addEventListener("dblclick",(click)=>{
const item=(click.target).getAttribute("data-item");
if(item!==null)app.toggle(app.model.items[Number(item)])});
let over=-1;
root.addEventListener("pointermove",(pointer)=>{
const item=pointer.buttons?null:(pointer.target).getAttribute("data-item");
const number=item===null?-1:Number(item);
if(number===over)return;
over=number;
hover(over)});
root.addEventListener("pointerleave",()=>{
over=-1;
hover(-1)});
new ResizeObserver(()=>{
if(!isPlaced&&drawn.boxes&&root.clientWidth){
begin();
isPlaced=true}else if(isPlaced)move()}).observe(root);
return{
zoom,
fit,
draw,
light,
drawn:()=>drawn,
place:()=>({...at}),
restore:(place)=>{
at={...place};
isPlaced=true;
move()},}}
function filled(wanted,room,length){
const last=room-TOP-length;
return Math.max(Math.min(wanted,Math.max(TOP,last)),Math.min(TOP,last))}
function isBody(mark){
return mark.item!==undefined&&!mark.c.startsWith("head")&&!mark.c.includes(" back")}
function sides(mark){
const{x=0,y=0,w=0,h:high=0,r=0}=mark;
if(mark.t==="circle")return{x:x-r,y:y-r,w:2*r,h:2*r};
return{x,y,w,h:high}}
function places(drawn){
const found=new Map();
for(const mark of drawn.marks)if(isBody(mark))found.set(mark.item,sides(mark));
return found}
function button(text,name,action){
return h("button",{title:name,"aria-label":name,onclick:action},text)}
function arrows(){
const defs=document.createElementNS(SVG,"defs");
const marker=document.createElementNS(SVG,"marker");
const shape=document.createElementNS(SVG,"path");
const all={id:"arrow",viewBox:"0 0 8 8",refX:"7",refY:"4",markerWidth:"8",markerHeight:"8",markerUnits:"userSpaceOnUse",orient:"auto"};
for(const[name,value]of Object.entries(all))marker.setAttribute(name,value);
shape.setAttribute("d","M1,1L7,4L1,7");
shape.setAttribute("class","arrow");
marker.append(shape);
defs.append(marker);
return defs}
function moved(root,now,moveTo,zoom){
const fingers=new Map();
let isMoved=false;
let start={x:0,y:0};
root.addEventListener("wheel",(wheel)=>{
wheel.preventDefault();
const box=root.getBoundingClientRect();
if(wheel.ctrlKey||wheel.metaKey)zoom(Math.exp(-wheel.deltaY / 300),wheel.clientX-box.left,wheel.clientY-box.top);
else moveTo(now().x-wheel.deltaX,now().y-wheel.deltaY)},{passive:false});
root.addEventListener("pointerdown",(down)=>{
if(down.button!==0)return;
fingers.set(down.pointerId,{x:down.clientX,y:down.clientY});
start={x:down.clientX,y:down.clientY};
isMoved=false});
root.addEventListener("pointermove",(move)=>{
const before=fingers.get(move.pointerId);
if(!before)return;
if(!isMoved&&Math.hypot(move.clientX-start.x,move.clientY-start.y)<4)return;
if(!isMoved)root.setPointerCapture(move.pointerId);
isMoved=true;
const here={x:move.clientX,y:move.clientY};
const other=[...fingers].find(([id])=>id!==move.pointerId);
fingers.set(move.pointerId,here);
if(!other){
moveTo(now().x+here.x-before.x,now().y+here.y-before.y);
return}
const[,still]=other;
const box=root.getBoundingClientRect();
const factor=Math.hypot(here.x-still.x,here.y-still.y)/ Math.max(1,Math.hypot(before.x-still.x,before.y-still.y));
zoom(factor,still.x-box.left,still.y-box.top)});
const end=(up)=>fingers.delete(up.pointerId);
root.addEventListener("pointerup",end);
root.addEventListener("pointercancel",end);
root.addEventListener("click",(click)=>{
if(!isMoved)return;
isMoved=false;
click.stopImmediatePropagation()},true)}
return { makeFlow };
})();
const in_verdict = (() => {
const{fill,h}=in_dom;
const MOST_FINDINGS=5;
const SPARK_WIDTH=150;
const SPARK_HEIGHT=26;
const NAMES={failure:"Why it failed",bad:"The first bad value",findings:"What looks wrong",fine:"The run"};
function verdictName(verdict){
return NAMES[verdict.kind]}
function verdictCard(app){
const verdict=app.model.verdict;
return[
headline(app,verdict),
verdict.also.map((each)=>h("p",{class:"also"},eventLink(app,each.event,each.text))),
sections(app,verdict.rows),
findings(app,verdict),
about(app,verdict),
tables(app,verdict),
]}
function headline(app,verdict){
const word=h("span",{class:"says"},verdict.text);
const heading=app.model.diff?h("h3",{},"run A: ",word):h("h2",{class:"verdict is-"+verdict.kind},word);
if(verdict.event>=0){
word.addEventListener("click",()=>app.select(verdict.event));
word.classList.add("leads")}
return heading}
function sections(app,rows){
const found=[];
for(const row of rows){
if(row.kind==="heading")found.push({title:row.cells[0][1],rows:[]});
else{
if(!found.length)found.push({title:"",rows:[]});
found[found.length-1].rows.push(row)}}
const isFirst=(section)=>section.rows.some((row)=>row.kind==="mismatch");
const ordered=[...found.filter(isFirst),...found.filter((section)=>!isFirst(section))];
return ordered.map((section)=>oneSection(app,section))}
function oneSection(app,section){
const rows=section.rows.map((row)=>answerRow(app,row));
if(section.title.startsWith("the last ")){
return h("details",{class:"answers"},h("summary",{},section.title),rows)}
const title=section.title?h("h3",{},section.title):"";
return h("section",{class:"answers"},title,rows)}
function answerRow(app,row){
const depth=row.kind==="made"?row.depth+1:row.depth;
const said=row.kind==="path"?row.cells.filter(([kind])=>kind!=="error"):row.cells;
const cells=said.map(([kind,text])=>cell(kind,text));
const place=row.at?placeLink(app,row.at,row.event):"";
const line=h("div",{class:"answer "+row.kind,style:`padding-left:${Math.min(depth, 12) * 12}px`},h("span",{class:"words"},cells),place);
if(row.event>=0){
line.classList.add("leads");
line.setAttribute("data-event",String(row.event));
line.addEventListener("click",()=>app.select(row.event))}
return line}
const CODE=new Set(["expression","gives","takes","name","source","class"]);
function cell(kind,text){
if(CODE.has(kind))return[h("code",{class:kind==="gives"?"shape":kind==="expression"?"":"dim"},text)," "];
return[h("span",{class:kind},text)," "]}
function placeLink(app,at,event){
const go=(click)=>{
click.preventDefault();
click.stopPropagation();
if(event>=0)app.select(event);
else app.showPlace(at.file,at.line)};
return h("a",{class:"place",title:at.path,href:event>=0?"#event="+event:"#",onclick:go},at.word)}
function eventLink(app,event,text){
if(event<0)return h("span",{},text);
const go=(click)=>{
click.preventDefault();
app.select(event)};
return h("a",{href:"#event="+event,"data-event":event,onclick:go},text)}
function findings(app,verdict){
if(!verdict.findings.length)return "";
const title=verdict.kind==="findings"?"":h("h3",{},"what looks wrong");
const list=h("div",{});
const show=(most)=>{
const left=verdict.findings.length-most;
const more=left>0?h("button",{class:"more",onclick:()=>show(verdict.findings.length)},`${left} more`):"";
fill(list,verdict.findings.slice(0,most).map((each,at)=>finding(app,each,at,verdict.kind==="findings")),more)};
show(app.finding<MOST_FINDINGS?MOST_FINDINGS:verdict.findings.length);
return h("section",{class:"answers"},title,list)}
function finding(app,each,number,isVerdict){
const isOpen=app.finding>=0?number===app.finding:isVerdict&&number===0;
const often=each.times>1?h("span",{class:"often"},"× "+each.times.toLocaleString("en")):"";
const place=each.at?placeLink(app,each.at,each.event):"";
const heading=h("summary",{},h("span",{class:"words"},h("span",{class:"severity "+each.severity},each.severity)," ",each.text," ",often));
const about=h("details",{class:"finding "+each.severity,"data-finding":each.kind,"data-number":number,open:isOpen},heading,each.rows.map((row)=>answerRow(app,row)));
return h("div",{class:"found"},about,place)}
function about(app,verdict){
if(!verdict.about.length)return "";
const lines=verdict.about.map((line)=>[
h("dt",{},line.label),
h("dd",{},parts(app,line),line.points.some(([,number])=>number!==null)?sparkline(app,line.points):""),
]);
const missing=verdict.missing.map((each)=>h("p",{class:"note"},"not judged: "+each));
const title=verdict.kind==="fine"?"":h("h3",{},"the run");
return h("section",{class:"about"},title,h("dl",{},lines),missing)}
function tables(app,verdict){
return verdict.tables.map((table)=>{
const head=h("tr",{},table.columns.map((name)=>h("th",{scope:"col"},name)));
const rows=table.rows.map(([depth,event,texts,alarms])=>h("tr",{},texts.map((text,at)=>{
const style=at?undefined:`padding-left:${Math.min(depth, 12) * 10}px`;
return h("td",{style,class:alarms.includes(at)?"error":undefined},at?text:eventLink(app,event,text))})));
return h("details",{class:"answers table"},h("summary",{},table.title),
h("div",{class:"wide"},h("table",{},h("thead",{},head),h("tbody",{},rows))),
table.below.map((text)=>h("p",{class:"dim"},text)))})}
function parts(app,line){
return line.parts.map(([text,event],at)=>[at?line.between:"",eventLink(app,event,text)])}
function sparkline(app,points,now=-1){
const SVG="http://www.w3.org/2000/svg";
const svg=document.createElementNS(SVG,"svg");
const known=points.flatMap(([,number])=>(number===null?[]:[number]));
const low=Math.min(...known);
const high=Math.max(...known);
const x=(at)=>3+(at /(points.length-1))*(SPARK_WIDTH-6);
const y=(number)=>(high>low?3+((high-number)/(high-low))*(SPARK_HEIGHT-6):SPARK_HEIGHT / 2);
let path="";
points.forEach(([,number],at)=>{
const isJoined=at>0&&points[at-1][1]!==null;
if(number!==null)path +=`${isJoined ? "L" : "M"}${x(at).toFixed(1)},${y(number).toFixed(1)}`});
const add=(tag,properties)=>{
const element=document.createElementNS(SVG,tag);
for(const[name,value]of Object.entries(properties))element.setAttribute(name,String(value));
svg.append(element)};
svg.setAttribute("class","sparkline");
svg.setAttribute("width",String(SPARK_WIDTH));
svg.setAttribute("height",String(SPARK_HEIGHT));
svg.setAttribute("role","img");
svg.setAttribute("aria-label","how it changed");
if(path)add("path",{d:path});
points.forEach(([,number],at)=>{
if(number===null)add("circle",{class:"bad",cx:x(at).toFixed(1),cy:SPARK_HEIGHT-3,r:2});
else if(at===(now<0?points.length-1:now))add("circle",{cx:x(at).toFixed(1),cy:y(number).toFixed(1),r:2.5})});
svg.addEventListener("click",(click)=>{
const box=svg.getBoundingClientRect();
const at=Math.round(((click.clientX-box.left-3)/(box.width-6))*(points.length-1));
app.select(points[Math.max(0,Math.min(points.length-1,at))][0])});
return svg}
return { verdictName, verdictCard, answerRow, eventLink, sparkline };
})();
const in_tensor = (() => {
const{h}=in_dom;
const{sparkline}=in_verdict;
const HIGHEST=9;
const LEVELS="0123456789abcdefghijklmnopqrstuvwxyz";
const CELL=6;
const LEAST_POINTS=3;
const MOST_POINTS=200;
function tensorCard(app,value,side="",at=-1){
const{model}=app;
const known=model.values.stats[value];
const isBad=app.trail.values.has(value);
const facts=factsOf(model,value);
if(!known)return facts?h("div",{class:"stats facts"},facts):"";
const line=h("div",{class:"stats"+(isBad?" bad":"")},bars(known),words(model.values.word[value],known).map((word)=>h("span",{},word)),history(app,side,at));
const more=[
facts?h("p",{class:"facts"},facts):"",
known.first?h("p",{},h("span",{class:"dim"},"first "),h("code",{},known.first.join("  ")+(known.first.length===8?" …":""))):"",
known.map?heatMap(known.map):"",
known.picture?picture(known.picture):"",
].filter(Boolean);
if(!known.first)return h("div",{},line,more);
return h("div",{},line,h("details",{class:"tensor"},h("summary",{},"what is in it"),more))}
function history(app,side,at){
const{model,item,selected}=app;
if(!side||!item||item.nodes.length<LEAST_POINTS||!item.nodes.includes(selected))return "";
const every=Math.ceil(item.nodes.length / MOST_POINTS);
const nodes=item.nodes.filter((event,number)=>number % every===0||event===selected);
const points=nodes.map((event)=>[event,sizeOf(model.values.stats[model.events[side][event][at]])]);
if(points.filter(([,number])=>number!==undefined).length<LEAST_POINTS)return "";
const line=sparkline(app,points.map(([event,number])=>[event,number===undefined?null:number]),nodes.indexOf(selected));
line.setAttribute("aria-label",`over ${item.nodes.length.toLocaleString("en")} rounds`);
return line}
function sizeOf(known){
if(!known||known.mean===undefined)return known?null:undefined;
if(known.nan>0||known.inf>0)return null;
return known.min===known.max?known.mean:Math.hypot(known.mean,known.std||0)}
function factsOf(model,value){
const size=model.values.sizes[model.values.word[value]];
const bytes=size?sizeWord(size[0]):"";
const device=model.values.device?model.values.device[value]:"";
return[bytes,device].filter(Boolean).join(" · ")}
function sizeWord(bytes){
if(bytes<1000)return bytes+" B";
for(const[unit,factor]of([["kB",1e3],["MB",1e6],["GB",1e9]])){
if(bytes / factor<999.95)return(bytes / factor).toFixed(1)+ " "+unit}
return(bytes / 1e12).toFixed(1)+ " TB"}
function words(word,known){
const found=[];
const isOne= /^[^[]*\[(1(, 1)*)?\]/.test(word);
const isWhole= /^(i|u)\d+\[/.test(word);
if(known.min!==undefined&&known.min===known.max)found.push(isOne?"= "+number(known.min):"all "+number(known.min));
else if(known.min!==undefined){
if(!isWhole&&known.mean!==undefined)found.push("μ "+number(known.mean),"σ "+number(known.std));
found.push(`${number(known.min)} … ${number(known.max)}`)}
if(known.nan>0)found.push(known.nan.toLocaleString("en")+ " NaN");
if(known.inf>0)found.push(known.inf.toLocaleString("en")+ " inf");
if(known.zeros>0&&!isOne&&known.min!==known.max)found.push(known.zeros.toLocaleString("en")+ " zeros");
return found}
function number(each){
if(each!==0&&(Math.abs(each)>=1e5||Math.abs(each)<1e-3))return each.toExponential(2);
return String(Math.round(each*1000)/ 1000)}
function bars(known){
if(!known.histogram)return "";
const height=(bar)=>Math.max(1,Math.round((18*Number(bar))/ HIGHEST));
return h("span",{class:"histogram"+(known.histogram.length<24?" whole":"")},[...known.histogram].map((bar)=>h("i",{style:`height:${height(bar)}px`})))}
function heatMap({columns,cells,ends}){
const rows=cells.length / columns;
const canvas=h("canvas",{class:"map",width:columns,height:rows,role:"img","aria-label":`a map from ${ends[0]} to ${ends[1]}`});
canvas.style.width=columns*CELL+"px";
canvas.style.height=rows*CELL+"px";
const pen=(canvas.getContext("2d"));
const style=getComputedStyle(document.documentElement);
const ink=style.getPropertyValue("--cell").trim()||style.getPropertyValue("--accent").trim();
[...cells].forEach((cell,at)=>{
const level=LEVELS.indexOf(cell);
pen.globalAlpha=level<0?1:0.06+(0.94*level)/(LEVELS.length-1);
pen.fillStyle=level<0?style.getPropertyValue("--red").trim():ink;
pen.fillRect(at % columns,Math.floor(at / columns),1,1)});
return h("div",{},canvas,h("span",{class:"dim"},` ${ends[0]} … ${ends[1]}`))}
function picture({width,rgb}){
const bytes=Uint8Array.from(atob(rgb),(letter)=>letter.charCodeAt(0));
const height=bytes.length / 3 / width;
const canvas=h("canvas",{class:"map picture",width,height,role:"img","aria-label":"as a picture, from the lowest number to the highest"});
canvas.style.width=width*3+"px";
canvas.style.height=height*3+"px";
const pixels=new ImageData(width,height);
for(let at=0;at<width*height;at++)pixels.data.set([bytes[3*at],bytes[3*at+1],bytes[3*at+2],255],4*at);
const pen=canvas.getContext("2d");
if(pen)pen.putImageData(pixels,0,0);
return canvas}
return { tensorCard, sizeWord };
})();
const in_overlays = (() => {
const{duration,fill,h}=in_dom;
const{sizeWord}=in_tensor;
const STRONGEST=55;
const FAINTEST=4;
function makeOverlays(app){
const{model}=app;
const overlays=(overlaysOf(model));
const legend=h("div",{class:"key",hidden:true});
const chooser=h("select",{"aria-label":"colour of the boxes",title:"colour the boxes by",onchange:()=>choose(chooser.value)});
chooser.append(h("option",{value:""},"colour by kind"),...overlays.map((each)=>h("option",{value:each.name},"by "+each.label)));
let chosen=null;
let low=0;
let high=0;
function choose(name){
chosen=overlays.find((each)=>each.name===name)||null;
chooser.value=chosen?chosen.name:"";
app.panes.flow.light();
app.state.coloured()}
function numberOf(item){
const event=app.eventOf(item);
if(event>=0)return chosen.of(event);
const inside=item.children.map(numberOf).filter((each)=>each!==null);
if(!inside.length)return null;
return chosen.isSum?inside.reduce((sum,each)=>sum+each,0):Math.max(...inside)}
const isBox=(mark)=>mark.item!==undefined&&mark.toggle===undefined&&mark.c.startsWith("box");
function begin(drawn){
legend.hidden=!chosen;
if(!chosen)return;
const known=drawn.marks.filter(isBox).map((mark)=>numberOf(model.items[mark.item])).filter((each)=>each!==null&&Number.isFinite(each));
const shown=chosen.isLinear?known:known.filter((each)=>each>0);
low=shown.length?Math.min(...shown):0;
high=shown.length?Math.max(...shown):0;
const colour=chosen.colour||"var(--accent)";
const scale=h("i",{class:"scale",style:`background:linear-gradient(90deg,${mixed(colour, FAINTEST)},${mixed(colour, STRONGEST)})`});
const ends=shown.length?[chosen.word(low),scale,chosen.word(high)]:["nothing of that was recorded"];
fill(legend,h("b",{},chosen.label),ends.map((each)=>h("span",{},each)))}
function mark(element,mark){
if(!isBox(mark))return;
const number=chosen?numberOf(model.items[mark.item]):null;
if(number===null||!Number.isFinite(number))element.style.fill="";
else element.style.fill=mixed(chosen.colour||"var(--accent)",FAINTEST+part(number)*(STRONGEST-FAINTEST))}
function part(number){
if(high<=low)return number>0?1:0;
if(chosen.isLinear)return(number-low)/(high-low);
return number<=low?0:Math.min(1,Math.log(number / low)/ Math.log(high / low))}
return{
begin,
mark,
choose,
chosen:()=>(chosen?chosen.name:""),
build(pane){
const header=pane.querySelector("header");
const dim=header&&header.querySelector(".grow");
if(dim)dim.before(chooser);
pane.append(legend)},}}
function mixed(colour,percent){
return `color-mix(in srgb, ${colour} ${percent.toFixed(0)}%, var(--paper))`}
function overlaysOf(model){
const{events,values}=model;
const hasStats=Object.keys(values.stats).length>0;
const most=(numbers)=>(numbers.length?Math.max(...numbers):null);
const spreadsOf=(event)=>{
const floats=events.gives[event].filter((value)=>/^(f|bf)\d/.test(values.word[value])&&values.stats[value]);
return floats.map((value)=>values.stats[value].std).filter((each)=>each!==undefined)};
const exact=(number)=>(number!==0&&(number<1e-3||number>=1e4)?number.toExponential(1):String(Math.round(number*1000)/ 1000));
const found=[
{name:"time",label:"host time",of:(event)=>(events.spent[event]<0?null:events.spent[event]),word:(number)=>duration(number,model.tick),isSum:true},
{name:"memory",label:"bytes of the output",of:(event)=>bytesOf(model,event),word:sizeWord,isSum:true},
{name:"parameters",label:"parameters",of:(event)=>parametersOf(model,event),word:(number)=>number.toLocaleString("en"),isSum:true},
];
if(hasStats){
found.push({name:"spread",label:"σ of the output",of:(event)=>most(spreadsOf(event)),word:exact});
found.push({name:"zeros",label:"zeros in the output",of:(event)=>most(shareOfZeros(model,event)),word:(number)=>Math.round(100*number)+ " %",isLinear:true})}
if(model.diff){
const errors=new Map(model.diff.rows.filter((row)=>row.error!==null).map((row)=>[row.value,row.error]));
found.push({name:"error",label:"error of the two runs",of:(event)=>most(events.gives[event].map((value)=>errors.get(value)).filter((each)=>each!==undefined)),word:exact,colour:"var(--red)"})}
return found}
function bytesOf(model,event){
const given=[...new Set(model.events.gives[event])].map((value)=>model.values.sizes[model.values.word[value]]).filter(Boolean);
return given.length?given.reduce((sum,[bytes])=>sum+bytes,0):null}
function parametersOf(model,event){
const item=model.itemOf.get(event);
return item&&item.parameters>0?item.parameters:null}
function shareOfZeros(model,event){
return model.events.gives[event].flatMap((value)=>{
const stats=model.values.stats[value];
const size=model.values.sizes[model.values.word[value]];
return stats&&stats.zeros!==undefined&&size&&size[1]?[stats.zeros / size[1]]:[]})}
return { makeOverlays };
})();
const in_diff = (() => {
const{coloured}=in_code;
const{sampleOf}=in_data;
const{fill,h}=in_dom;
const{eventLink}=in_verdict;
const NONE={build(){},follow(){},mark(){},stateOf:()=>"",lineState:()=>"",showOther(){}};
const STATES=["parts","differs","agrees"];
function makeDiff(app){
const{model}=app;
const{diff}=model;
if(!diff)return NONE;
const byValue=new Map(diff.rows.map((row)=>[row.value,row]));
const first=new Set(diff.first);
const lastIn=new Map();
for(const row of diff.rows){
for(let each=row.event;each>=0;each=model.events.parent[each]){
if(!lastIn.has(each)||lastIn.get(each).event<row.event)lastIn.set(each,row)}}
const firstIn=new Set();
for(const event of first)for(let each=event;each>=0;each=model.events.parent[each])firstIn.add(each);
const ofLines=lineStates("a",(row)=>placeOfEvent(row.event));
let other=null;
function stateOfEvent(event){
if(event<0)return "";
if(firstIn.has(event))return "parts";
const rows=rowsOf(event);
if(!rows.length)return "";
return rows.every((row)=>row.agrees)?"agrees":"differs"}
function rowsOf(event){
const rows=model.events.gives[event].map((value)=>byValue.get(value)).filter(Boolean);
return rows.length||!lastIn.has(event)?rows:[lastIn.get(event)]}
function stateOf(item){
if(item.nodes.length)return stateOfEvent(app.eventOf(item));
const states=new Set(item.children.map(stateOf));
return STATES.find((state)=>states.has(state))||""}
function mark(element,mark){
if(mark.item===undefined||mark.toggle!==undefined)return;
const state=stateOf(model.items[mark.item]);
for(const name of STATES)element.classList.toggle(name,state===name)}
function build(body,code){
body.classList.add("two-runs");
const pane=h("div",{class:"pane code other","data-pane":"other"});
const both=h("div",{class:"codes"});
code.replaceWith(both);
both.append(code,pane);
code.querySelector("header").prepend(h("span",{class:"run"},"A"));
other=otherCode(app,pane,lineStates("b",(row)=>(row.file>=0?row.file+":"+row.line:"")));
showFirst()}
function placeOfEvent(event){
const at=event>=0?sampleOf(model,event).at:null;
return at&&at.file>=0?at.file+":"+at.line:""}
function lineStates(side,placeOf){
const found=new Map();
for(const row of diff.rows){
const place=placeOf(row);
if(!place)continue;
if(!row.agrees||!found.has(place))found.set(place,row.agrees?"agrees":"differs")}
for(const section of diff.sections.slice(0,1)){
for(const row of section.rows){
const at=row.kind===side?row.at:side==="b"&&row.kind==="a"?row.other:null;
if(at)found.set(at.file+":"+at.line,"parts")}}
return found}
function follow(event){
if(!other)return;
const change=diff.sections.flatMap((section)=>section.rows).find((row)=>row.other&&row.event===event);
if(change){
other.show(change.other.file,change.other.line);
return}
if(first.has(event)){
showFirst();
return}
const row=rowsOf(event).find((each)=>each.file>=0);
if(row)other.show(row.file,row.line)}
function showFirst(){
const rows=diff.sections.flatMap((section)=>section.rows);
const row=rows.find((each)=>each.kind==="b"&&each.at&&each.at.file>=0);
if(row)other.show(row.at.file,row.at.line)}
return{build,follow,mark,stateOf,lineState:(file,line)=>ofLines.get(file+":"+line)||"",showOther:(file,line)=>other.show(file,line)}}
function otherCode(app,pane,states){
const{files,name}=app.model.diff;
const choose=()=>showFile(Number(chooser.value));
const chooser=(h("select",{"aria-label":"file of B",onchange:choose}));
const lines=h("div",{class:"lines",tabindex:0});
pane.append(h("header",{},h("span",{class:"run"},"B"),files.length?chooser:h("span",{class:"dim"},name)),lines);
files.forEach((file,at)=>chooser.append(h("option",{value:at},file.name.split("/").pop())));
if(!files.length)fill(lines,h("p",{class:"nothing"},"No source text of B was kept."));
let shown=-1;
let rows=new Map();
let selected=null;
function showFile(number){
if(number===shown||number<0||number>=files.length)return;
shown=number;
chooser.value=String(number);
rows=new Map();
const made=[];
let last=0;
for(const piece of files[number].pieces){
if(piece.first>last+1)made.push(h("div",{class:"skipped"},`⋯ ${piece.first - last - 1} lines`));
piece.lines.forEach((text,offset)=>made.push(oneLine(number,piece.first+offset,text)));
last=piece.first+piece.lines.length-1}
lines.replaceChildren(...made)}
function oneLine(number,line,text){
const margin=files[number].margins.get(line);
const state=states.get(number+":"+line)||"";
const row=h("div",{class:`line ${margin ? "ran" : ""} ${state}`,"data-line":line},
h("span",{class:"number"},line),h("span",{class:"times"},margin&&margin.times>1?margin.times+"×":""),
h("code",{class:"source"},coloured(text)),margin&&h("code",{class:"shape"},margin.word));
rows.set(line,row);
return row}
function show(file,line){
showFile(file);
if(selected)selected.classList.remove("selected");
selected=rows.get(line)||null;
if(!selected)return;
selected.classList.add("selected");
const top=selected.offsetTop;
if(top<lines.scrollTop+20||top>lines.scrollTop+lines.clientHeight-60)lines.scrollTop=Math.max(0,top-lines.clientHeight / 3)}
showFile(0);
return{show}}
function diffCard(app){
const{diff}=app.model;
if(!diff)return "";
return h("section",{class:"answers diff"},
h("h2",{class:"verdict is-"+diff.verdict},diff.text),
diff.sections.map((section)=>[section.title?h("h3",{},section.title):"",h("div",{class:"two"},section.rows.map((row)=>diffRow(app,row)))]),
diff.summary?h("p",{class:"dim"},diff.summary):"",
growth(app,diff.rows),
diff.notes.map((note)=>h("p",{class:"note"},"note: "+note)))}
function diffRow(app,row){
const words=row.event>=0?eventLink(app,row.event,row.text):row.text;
const depth=row.depth?`padding-left:${Math.min(row.depth, 12) * 14}px`:undefined;
const isCode=row.kind==="a"||row.kind==="b";
return[
h("span",{class:"label "+row.kind},row.label),
h("span",{class:"words "+row.kind,style:depth},row.module?h("span",{class:"module"},row.module):"",isCode?h("code",{},words):words),
row.at?h("a",{class:"place",title:row.at.path,href:"#",onclick:(click)=>go(app,click,row)},row.at.word):h("span",{}),
]}
function go(app,click,row){
click.preventDefault();
if(row.kind==="b")app.diff.showOther(row.at.file,row.at.line);
else if(row.event>=0)app.select(row.event)}
const WIDTH=460;
const HEIGHT=110;
const LOWEST=1e-9;
const LEFT=42;
function growth(app,rows){
const known=rows.filter((row)=>row.error!==null&&row.event>=0).sort((a,b)=>a.event-b.event);
if(known.length<3)return "";
const highest=Math.max(1e-6,...known.map((row)=>row.error||0));
const power=(number)=>Math.log10(Math.max(LOWEST,number));
const x=(at)=>LEFT+(at /(known.length-1))*(WIDTH-LEFT-8);
const y=(number)=>8+((power(highest)- power(number))/(power(highest)- power(LOWEST)))*(HEIGHT-26);
const svg=element("svg",{class:"growth",viewBox:`0 0 ${WIDTH} ${HEIGHT}`,role:"img","aria-label":"how the error grows along the run"});
for(let each=Math.ceil(power(LOWEST));each<=power(highest);each +=3){
svg.append(element("path",{class:"axis",d:`M${LEFT},${y(10 ** each)}H${WIDTH - 8}`}));
svg.append(word(4,y(10**each)+ 3,each===Math.ceil(power(LOWEST))?"equal":"1e"+each))}
svg.append(element("path",{class:"allowed",d:known.map((row,at)=>`${at ? "L" : "M"}${x(at).toFixed(1)},${y(row.tolerance).toFixed(1)}`).join("")}));
known.forEach((row,at)=>svg.append(element("circle",{class:row.agrees?"agrees":"differs",cx:x(at).toFixed(1),cy:y(row.error).toFixed(1),r:2.6})));
svg.append(word(LEFT,HEIGHT-3,"error of each value, in the order of the run; dashed: what roundings allow"));
svg.addEventListener("click",(click)=>{
const box=svg.getBoundingClientRect();
const at=Math.round((((click.clientX-box.left)/ box.width)*WIDTH-LEFT)/((WIDTH-LEFT-8)/(known.length-1)));
app.select(known[Math.max(0,Math.min(known.length-1,at))].event)});
return svg}
function word(x,y,text){
const found=element("text",{x,y});
found.textContent=text;
return found}
function element(tag,properties){
const found=document.createElementNS("http://www.w3.org/2000/svg",tag);
for(const[name,value]of Object.entries(properties))found.setAttribute(name,String(value));
return found}
return { makeDiff, diffCard };
})();
const in_details = (() => {
const{itemWith,roundWord,sampleOf,seenFrom,shownEvent,sourceValue,timesIn}=in_data;
const{count,duration,fill,h,link}=in_dom;
const{diffCard}=in_diff;
const{tensorCard}=in_tensor;
const{verdictCard,verdictName}=in_verdict;
const MOST=4;
const MOST_LEAVING=200;
const MOST_LIVES=40;
function makeDetails(app,pane){
const title=h("span",{class:"dim"}),rounds=h("span",{class:"rounds"}),body=h("div",{class:"body"});
const{verdict}=app.model;
const home=verdict?h("button",{class:"home",onclick:()=>app.goHome()},app.model.diff?"Where they differ":verdictName(verdict)):"";
pane.append(h("header",{},h("b",{},"Details"),title,h("span",{class:"grow"}),rounds,home),body);
return{
body,
draw(){
const{model,selected}=app;
const card=app.isHome&&verdict?h("div",{class:"card"},diffCard(app),verdictCard(app)):"";
if(home)home.classList.toggle("on",app.isHome);
if(selected<0){title.textContent="";fill(body,card||h("p",{class:"nothing"},"Select a step, a box or a line."),notes(model));return;}
if(app.item&&!app.item.nodes.length){
title.textContent="#"+selected;
rounds.replaceChildren(...app.roundButtons());
body.scrollTop=0;
fill(body,card,path(app),group(app),notes(model));
return}
const sample=sampleOf(model,selected);
title.textContent="#"+selected;
rounds.replaceChildren(...app.roundButtons());
body.scrollTop=0;
fill(body,card,path(app),headline(app,sample),takes(app,sample),gives(app,sample),time(app),stack(app,sample),life(app,sample),notes(model))},
point(side,at){
const{model,selected}=app;
const ids=model.events[side][selected];
const isCounted=(value,place)=>!model.values.parameters.has(value)&&ids.indexOf(value)===place;
const places=[...ids.keys()].filter((place)=>isCounted(ids[place],place));
const row=body.querySelector(`[data-side=${side}][data-at="${places[at]}"]`)||body.querySelector(`[data-side=${side}]`);
for(const each of body.querySelectorAll(".pointed"))each.classList.remove("pointed");
if(!row)return;
row.classList.add("pointed");
row.scrollIntoView({block:"nearest"})},}}
function group(app){
const{item,model}=app;
const at=app.shown(item).at;
const inside=item.children.filter((child)=>app.shown(child).isThere);
const spent=spentIn(model,item,at);
const rows=inside.map((child)=>{
const event=app.eventOf(child)>=0?app.eventOf(child):app.firstInside(child);
const name=h("code",{},child.title||child.code);
return h("div",{class:"frame"},link(app,event,{class:"step"},h("i",{class:"dot "+child.hue}),name),h("code",{class:"shape"},child.gives))});
const round=item.slots.length>1?`round ${roundWord(item, at, item.slots[at])}`:item.detail;
return[
h("h2",{},h("code",{},item.code||item.title||"repeat"),item.often?h("span",{class:"often"},item.often):""),
h("p",{},h("span",{class:"tag"},item.kind==="loop"?"loop":item.kind==="library"?"steps of a library":"steps")," ",round),
item.only&&h("p",{class:"dim"},item.only),
section("in it",rows),
section("time",h("p",{},h("b",{},duration(spent,model.tick)),h("span",{class:"dim"}," host time in these steps"))),
]}
function spentIn(model,item,slot){
let spent=0;
for(const child of item.children){
const[first,last]=timesIn(child,slot);
for(let at=first;at<last;at++){
spent +=child.nodes.length?Math.max(0,model.events.spent[child.nodes[at]]):spentIn(model,child,at)}}
return spent}
function notes(model){
return model.run.notes.map((note)=>h("p",{class:"note"},"note: "+note))}
function path(app){
const around=[];
let item=app.item?app.model.items[app.item.parent]:null;
if(app.item&&app.item.nodes.length&&app.model.itemOf.get(app.selected)!==app.item)item=app.item;
for(;item;item=app.model.items[item.parent])around.unshift(item);
return h("p",{class:"path"},around.map((each)=>[itemLink(app,each)," › "]))}
function itemLink(app,item){
const onclick=(click)=>{
click.preventDefault();
app.selectItem(item)};
return h("a",{href:"#event="+app.firstInside(item),onclick},item.title||item.code||"repeat")}
function headline(app,sample){
const item=app.model.itemOf.get(app.selected),at=sample.at;
return[
h("h2",{},h("i",{class:"dot "+(item?item.hue:"")}),h("code",{},sample.code||sample.name)),
h("p",{},h("span",{class:"tag"},sample.kind)," ",sample.kind==="module"?sample.detail:sample.name,parametersOf(item,sample),sample.module&&sample.kind!=="module"?h("span",{class:"dim"},"  in "+sample.module):"",sample.phase==="backward"?h("span",{class:"dim"},"  backward"):""),
item&&item.only&&h("p",{class:"dim"},item.only),
sample.error&&h("p",{class:"error"},"✗ "+sample.error),
sample.note&&h("p",{class:"note"},sample.note),
at&&h("p",{},place(app,at,app.selected),h("span",{class:"dim"}," in "+at.function)),
]}
function parametersOf(item,sample){
if(sample.kind!=="module"||!item||!(item.parameters>0))return "";
return h("span",{class:"dim"},`  ${count(item.parameters)} parameters`)}
function place(app,at,event){
const file=at.file>=0?app.model.files[at.file].name:at.path;
return link(app,event,{},`${file.split("/").pop()}:${at.line}`)}
function takes(app,sample){
const{model,selected}=app,ids=model.events.takes[selected];
return section("takes",ids.length?ids.map((value,at)=>{
const source=sourceValue(model,selected,at),isParameter=model.values.parameters.has(value),operand=sample.operands[at]||"";
const maker=model.values.maker[source];
return line(sample.roles[at],[h("code",{class:"shape"},model.values.word[value])," ",isParameter?h("span",{class:"tag"},"parameter"):""," ",operand!==sample.roles[at]?h("code",{class:"dim"},operand):"",
!isParameter&&maker>=0&&maker!==selected?h("div",{},h("span",{class:"dim"},"from "),step(app,seen(app,maker))):"",tensorCard(app,value,"takes",at)],{"data-side":"takes","data-at":at})}):sample.args&&sample.args!=="()"?h("code",{class:"dim"},sample.args):h("span",{class:"dim"},"nothing"))}
function gives(app,sample){
const{model,selected}=app,ids=model.events.gives[selected];
if(sample.error)return section("gives",h("span",{class:"dim"},"nothing: it failed"));
return section("gives",ids.length?ids.map((value,at)=>{
const readers=[...new Set((model.readers.get(value)||[]).filter((event)=>event>selected&&!inside(model,event,selected)).map((event)=>seen(app,event)))];
const name=sample.target.length===ids.length?sample.target[at]:at===0&&sample.target.length===1?sample.target[0]:"";
return line(sample.results[at],[h("code",{class:"shape"},model.values.word[value])," ",h("code",{class:"dim"},name),
readers.length?h("div",{},h("span",{class:"dim"},"to "),readers.slice(0,MOST).map((event)=>step(app,event)),readers.length>MOST?h("span",{class:"dim"},` +${readers.length - MOST} more`):""):"",tensorCard(app,value,"gives",at)],{"data-side":"gives","data-at":at})}):h("code",{class:"dim"},resultWord(app,sample)),leaves(app))}
function resultWord(app,sample){
if(sample.result&&sample.result!=="None")return sample.result;
return leaving(app).length?"returns nothing":"nothing"}
function leaving(app){
const{model,selected}=app;
const{events}=model;
const found=[];
const seen=new Set(events.gives[selected]);
for(let event=selected+1;event<events.size&&events.parent[event]>=selected&&found.length<MOST_LEAVING;event++){
for(const value of events.gives[event]){
if(seen.has(value)||model.values.parameters.has(value))continue;
seen.add(value);
const readers=(model.readers.get(value)||[]).filter((reader)=>reader>selected&&!inside(model,reader,selected));
if(readers.length)found.push({value,readers})}}
return found}
function leaves(app){
const{model}=app;
const found=leaving(app);
const rows=found.slice(0,2*MOST).map(({value,readers})=>{
const all=[...new Set(readers.map((event)=>seen(app,event)))];
const to=h("div",{},h("span",{class:"dim"},"to "),all.slice(0,MOST).map((event)=>step(app,event)));
return line("made in it",[h("code",{class:"shape"},model.values.word[value]),to],{"data-side":"gives"})});
const more=found.length-rows.length;
return[rows,more>0?h("p",{class:"dim"},`and ${more} more`):""]}
function inside(model,event,around){
while(event>around)event=model.events.parent[event];
return event===around}
function seen(app,event){
const found=seenFrom(app.model,event,app.selected);
return found<0?event:found}
function step(app,event){
const shown=shownEvent(app.model,event),sample=sampleOf(app.model,shown>=0?shown:event),item=itemWith(app.model,event);
const name=sample.kind==="module"?(item?item.title:sample.name):sample.code||sample.name;
return link(app,shown>=0?shown:event,{class:"step",title:name},h("i",{class:"dot "+(item?item.hue:"")}),sample.kind==="module"?name:h("code",{},name))}
function section(name,...content){
return h("section",{},h("h3",{},name),content)}
function line(role,content,properties={}){
return h("div",{class:"value",...properties},h("span",{class:"role"},role||"—"),h("div",{},content))}
function time(app){
const{model,selected}=app,spent=model.events.spent[selected],parent=model.events.parent[selected];
const whole=parent>=0?model.events.spent[parent]:-1,part=whole>0&&spent>=0?spent / whole:null;
let inner=0;
for(let event=selected+1;event<model.events.size&&model.events.parent[event]>=selected;event++)inner++;
return section("time",h("p",{},h("b",{},duration(spent,model.tick)),h("span",{class:"dim"}," host time "),part!==null?[h("span",{class:"bar"},h("i",{style:`width:${(100 * part).toFixed(1)}%`})),h("span",{class:"dim"},` ${(100 * part).toFixed(1)} % of ${sampleOf(model, parent).module || sampleOf(model, parent).name}`)]:""),
inner?h("p",{class:"dim"},`${count(inner)} events inside`):"")}
function stack(app,sample){
if(sample.stack.length<2)return "";
return section("stack",sample.stack.slice().reverse().map((at)=>h("div",{class:"frame"},h("code",{},`${(at.file >= 0 ? app.model.files[at.file].name : at.path).split("/").pop()}:${at.line}`)," ",h("span",{class:"dim"},at.function))))}
function life(app,sample){
const{model}=app,name=sample.target[0]||(sample.kind==="variable"?sample.name:"");
if(!name||!sample.at)return "";
const isMeant=model.samples.map((each)=>!!each.at&&each.at.function===sample.at.function&&each.at.file===sample.at.file&&(each.target.includes(name)||(each.kind==="variable"&&each.name===name)));
const rows=[];
const first=model.samples.map((_,number)=>model.firstOf[number]).filter((_,number)=>isMeant[number]);
for(const event of first.sort((a,b)=>a-b).slice(0,MOST_LIVES)){
const number=model.events.sample[event];
const each=model.samples[number],value=model.events.gives[event][Math.max(0,each.target.indexOf(name))];
rows.push(h("div",{class:"frame"},link(app,event,{},":"+each.at.line)," ",h("code",{},each.code)," ",h("code",{class:"shape"},value===undefined?"":model.values.word[value])))}
return rows.length>1?section(`life of ${name}`,rows):""}
return { makeDetails };
})();
const in_timeline = (() => {
const{itemWith,sampleOf,shownEvent,threadWord}=in_data;
const{duration,h,safe}=in_dom;
const ROW=15;
const RULER=20;
const HEAD=15;
const GAP=3;
const MOST_LEVELS=12;
const NARROWEST=0.6;
const LEAST_FOR_TEXT=34;
const LEAST_TICK=90;
const LEAST_SPAN=20;
const FAINT=0.25;
const HUES=["","weights","norm","activation","attention","pool","dropout","loss","train"];
function makeTimeline(app,pane){
const{model}=app;
const title=h("span",{class:"dim"});
const canvas=(h("canvas",{tabindex:0,role:"img","aria-label":"timeline of host time"}));
const scroll=h("div",{class:"scroll"},canvas);
const all=()=>{
view.from=begin;
view.to=total;
paint()};
pane.append(h("header",{},h("b",{},"Time"),title,h("span",{class:"grow"}),h("button",{title:"all of the run",onclick:all},"all")),scroll);
const view={from:0,to:1};
let begin=0;
let total=1;
let process=null;
let threads=null;
const depth=new Int32Array(model.events.size);
const hue=new Uint8Array(model.events.size);
function prepare(){
const found=new Map();
const{parent,size}=model.events;
for(let event=0;event<size;event++){
const{process,thread:name}=sampleOf(model,event);
const around=parent[event];
const isSame=around>=0&&sampleOf(model,around).thread===name&&sampleOf(model,around).process===process;
depth[event]=isSame?depth[around]+ 1:0;
hue[event]=hueOf(event);
const key=`${process} ${name}`;
const thread=found.get(key)||({process,name,levels:0,events:[]});
found.set(key,thread);
thread.levels=Math.min(MOST_LEVELS,Math.max(thread.levels,depth[event]+ 1));
thread.events.push(event)}
threads=[...found.values()].sort((a,b)=>a.process-b.process)}
function measure(){
const{start,spent}=model.events;
process=app.process;
begin=Infinity;
total=0;
for(const{thread}of lanes()){
for(const event of thread.events){
begin=Math.min(begin,start[event]);
total=Math.max(total,start[event]+ Math.max(0,spent[event]))}}
if(begin===Infinity)begin=0;
total=Math.max(total,begin+1);
view.from=begin;
view.to=total}
function hueOf(event){
const item=model.itemOf.get(event);
const around=model.events.parent[event];
if(item)return Math.max(0,HUES.indexOf(item.hue));
return around>=0?hue[around]:0}
function lanes(){
let y=RULER;
return(threads||[]).filter((thread)=>app.process===null||thread.process===app.process).map((thread)=>{
const lane={thread,y:y+HEAD};
y +=HEAD+thread.levels*ROW+GAP;
return lane})}
function label(thread){
const isAlone=(threads||[]).every((each)=>each.process===(threads||[])[0].process);
return threadWord(thread.process,thread.name,!isAlone)}
function paint(){
if(pane.hidden)return;
const isNew=!threads;
if(isNew)prepare();
if(isNew||process!==app.process)measure();
const shown=lanes();
const last=shown[shown.length-1];
const width=scroll.clientWidth;
const height=last?last.y+last.thread.levels*ROW+GAP:RULER;
const ratio=window.devicePixelRatio||1;
canvas.width=width*ratio;
canvas.height=height*ratio;
canvas.style.width=`${width}px`;
canvas.style.height=`${height}px`;
const pen=(canvas.getContext("2d"));
const style=getComputedStyle(document.documentElement);
const colour=(name)=>style.getPropertyValue(`--${name}`).trim();
pen.scale(ratio,ratio);
pen.font=`10.5px ${colour("mono")}`;
ruler(pen,width,height,colour);
const scale=width /(view.to-view.from);
const chosen=new Set(app.item?app.item.nodes:[]);
const colours={
hues:HUES.map((name)=>(name?colour(name):colour("bar"))),
bar:colour("bar"),
lit:colour("accent"),
near:colour("near"),
failed:colour("red"),
ink:colour("ink"),
paper:colour("paper"),};
for(const{thread,y}of shown){
pen.globalAlpha=1;
pen.fillStyle=colour("dim");
pen.fillText(safe(label(thread)),6,y-4);
const painted=new Float64Array(MOST_LEVELS).fill(-1);
for(const event of thread.events)paintEvent(pen,event,y,scale,width,painted,chosen,colours)}
pen.globalAlpha=1;
title.textContent=`host time, ${duration(view.to - view.from, model.tick)} · scroll to zoom, drag to move`}
function paintEvent(pen,event,y,scale,width,painted,chosen,colours){
const level=depth[event];
if(level>=MOST_LEVELS)return;
const x=(model.events.start[event]- view.from)*scale;
const w=Math.max(NARROWEST,Math.max(0,model.events.spent[event])*scale);
if(x+w<0||x>width)return;
const isSelected=event===app.selected;
const isLit=isSelected||chosen.has(event);
const isHit=!!app.found&&app.found.events.has(event);
if(x+w<=painted[level]+ 0.5&&!isLit&&!isHit)return;
painted[level]=Math.max(painted[level],x+w);
const isBad=!!sampleOf(model,event).error||app.trail.events.has(event);
const top=y+level*ROW;
const dimmed=app.found&&!isHit?FAINT:1;
pen.globalAlpha=dimmed;
pen.fillStyle=colours.bar;
if(isBad)pen.fillStyle=colours.failed;
else if(isSelected)pen.fillStyle=colours.lit;
else if(isLit||isHit)pen.fillStyle=colours.near;
else if(hue[event]){
pen.fillRect(x,top,Math.max(NARROWEST,w-NARROWEST),ROW-2);
pen.globalAlpha=0.3*dimmed;
pen.fillStyle=colours.hues[hue[event]]}
pen.fillRect(x,top,Math.max(NARROWEST,w-NARROWEST),ROW-2);
pen.globalAlpha=dimmed;
if(w<=LEAST_FOR_TEXT)return;
pen.save();
pen.beginPath();
pen.rect(x,top,w-2,ROW);
pen.clip();
pen.fillStyle=isSelected||isBad?colours.paper:colours.ink;
pen.fillText(safe(shortName(event)),Math.max(x,0)+ 4,top+10);
pen.restore()}
function ruler(pen,width,height,colour){
const span=view.to-view.from;
const step=niceStep((span*LEAST_TICK)/ width);
pen.lineWidth=1;
for(let time=Math.ceil(view.from / step)*step;time<=view.to;time +=step){
const x=Math.round(((time-view.from)/ span)*width)+ 0.5;
pen.strokeStyle=colour("line");
pen.beginPath();
pen.moveTo(x,RULER-6);
pen.lineTo(x,height);
pen.stroke();
pen.fillStyle=colour("dim");
pen.fillText(time===0?"0":duration(time,model.tick),x+4,RULER-8)}}
function name(sample){
return sample.kind==="module"?sample.module||sample.name:sample.name}
function shortName(event){
const sample=sampleOf(model,event);
const whole=name(sample);
if(sample.kind!=="module")return whole;
let around=model.events.parent[event];
while(around>=0&&sampleOf(model,around).kind!=="module")around=model.events.parent[around];
const above=around>=0?sampleOf(model,around).module:"";
return above&&whole.startsWith(`${above}.`)?whole.slice(above.length+1):whole}
function at(pointer){
const box=canvas.getBoundingClientRect();
const scale=box.width /(view.to-view.from);
const time=view.from+(pointer.clientX-box.left)/ scale;
const y=pointer.clientY-box.top;
const lane=lanes().find((each)=>y>=each.y&&y<each.y+each.thread.levels*ROW);
if(!lane)return -1;
const level=Math.floor((y-lane.y)/ ROW);
const{start,spent}=model.events;
let best=-1;
for(const event of lane.thread.events){
if(start[event]>time+1 / scale)break;
const isOver=depth[event]===level&&start[event]+ Math.max(0,spent[event])>=time-1 / scale;
if(isOver)best=event}
return best}
function moveTo(from){
const span=view.to-view.from;
view.from=Math.max(begin,Math.min(total-span,from));
view.to=view.from+span;
paint()}
canvas.addEventListener("wheel",(wheel)=>{
wheel.preventDefault();
const box=canvas.getBoundingClientRect();
const part=(wheel.clientX-box.left)/ box.width;
const span=view.to-view.from;
if(Math.abs(wheel.deltaX)>Math.abs(wheel.deltaY)){
moveTo(view.from+(wheel.deltaX / box.width)*span);
return}
const wide=Math.min(total-begin,Math.max(LEAST_SPAN,span*Math.exp(wheel.deltaY / 400)));
const middle=view.from+part*span;
view.from=Math.max(begin,Math.min(total-wide,middle-part*wide));
view.to=view.from+wide;
paint()},{passive:false});
let drag={x:0,from:0,isMoved:false};
canvas.addEventListener("pointerdown",(down)=>{
drag={x:down.clientX,from:view.from,isMoved:false}});
canvas.addEventListener("pointermove",(move)=>{
if(move.buttons){
const by=drag.x-move.clientX;
drag.isMoved=drag.isMoved||Math.abs(by)>4;
if(drag.isMoved)moveTo(drag.from+(by / canvas.clientWidth)*(view.to-view.from));
return}
const event=at(move);
canvas.title=event<0?"":safe(`${name(sampleOf(model, event))} · ${duration(model.events.spent[event], model.tick)}`)});
canvas.addEventListener("click",(click)=>{
const event=drag.isMoved?-1:at(click);
if(event>=0)app.select(event)});
new ResizeObserver(paint).observe(pane);
return{
draw:paint,
at:(event)=>shownEvent(model,event),
lanes:()=>lanes().map(({thread,y})=>({name:label(thread),y,levels:thread.levels})),
view:()=>({...view,step:niceStep(((view.to-view.from)*LEAST_TICK)/ Math.max(1,scroll.clientWidth))}),
itemAt:(pointer)=>itemWith(model,at(pointer)),}}
function niceStep(least){
const power=10**Math.floor(Math.log10(Math.max(least,1e-9)));
for(const factor of[1,2,5])if(factor*power>=least)return factor*power;
return 10*power}
return { makeTimeline, niceStep };
})();
const in_search = (() => {
const{itemWith,sampleOf}=in_data;
function search(app,query){
const terms=query.trim().match(/\S+:"[^"]*"|\S+/g);
if(!terms)return null;
const{model}=app,tests=terms.map((term)=>test(model,term)),known=new Map();
const isOwn=terms.some((term)=>CONTENTS.has(term.toLowerCase())&&hasStats(model));
const found={events:new Set(),inOrder:[],hits:new Set(),items:new Set(),around:new Set(),count:0,first:-1};
for(let event=0;event<model.events.size;event++){
const number=model.events.sample[event];
if(isOwn||!known.has(number))known.set(number,tests.every((each)=>each(event,model.samples[number])));
if(!known.get(number))continue;
const item=itemWith(model,event);
if(!item||!app.shows(top(model,item)))continue;
found.events.add(event);
found.inOrder.push(event);
found.count++;
if(found.first<0)found.first=model.itemOf.has(event)?event:item.nodes[0];
if(found.hits.has(item.number))continue;
found.hits.add(item.number);
for(let each=item;each;each=model.items[each.parent]){
if(each!==item)found.around.add(each.number);
found.items.add(each.number)}}
return found}
const CONTENTS=new Set(["nan","inf"]);
function hasStats(model){
return Object.keys(model.values.stats).length>0}
function holds(model,event,what){
return model.events.gives[event].some((value)=>{
const stats=model.values.stats[value];
return!!stats&&stats[what]>0})}
function top(model,item){
while(item.parent>=0)item=model.items[item.parent];
return item}
function test(model,term){
if(CONTENTS.has(term.toLowerCase())&&hasStats(model))return(event)=>holds(model,event,term.toLowerCase());
const[,key,rest]=term.match(/^(?:(op|shape|line|module|kind|file):)?(.*)$/s),wanted=rest.replace(/^"|"$/g,"").toLowerCase();
if(key==="op")return(_,sample)=>(sample.kind==="op"||sample.kind==="function")&&glob(wanted).test(sample.name.toLowerCase().replace(/^(tensor\.|aten::|f\.)/,"").replace(/\..*$/,""));
if(key==="shape")return(event)=>[...model.events.takes[event],...model.events.gives[event]].some((value)=>isShape(model.values.word[value],wanted));
if(key==="line")return(_,sample)=>!!sample.at&&sample.at.line<=Number(wanted)&&sample.at.endLine>=Number(wanted);
if(key==="module")return(_,sample)=>sample.kind==="module"&&(glob(wanted).test(sample.module.toLowerCase())||sample.module.toLowerCase().split(".").some((_,at,parts)=>glob(wanted).test(parts.slice(at).join("."))));
if(key==="kind")return(_,sample)=>sample.kind===wanted;
if(key==="file")return(_,sample)=>!!sample.at&&sample.at.file>=0&&model.files[sample.at.file].name.toLowerCase().includes(wanted);
return(_,sample)=>[sample.name,sample.code,sample.detail,sample.error,sample.target.join(" "),sample.kind==="module"?sample.module:""].some((text)=>text.toLowerCase().includes(wanted))}
function glob(pattern){
return new RegExp("^"+pattern.replace(/[.+^${}()|[\]\\?]/g,"\\$&").replace(/\*/g,".*")+ "$")}
function isShape(word,wanted){
const sizes=(word.match(/\[(.*?)\]/)||[null,null])[1];
if(sizes===null)return false;
const have=sizes.split(",").map((size)=>size.trim()),want=wanted.replace(/[[\]\s]/g,"").split(",");
return have.length===want.length&&want.every((size,at)=>size==="*"||size===have[at])}
function nextMatch(app,step){
const{inOrder}=app.found;
if(!inOrder.length)return -1;
const at=inOrder.findIndex((event)=>event>=app.selected);
if(at<0)return step>0?inOrder[0]:inOrder[inOrder.length-1];
if(inOrder[at]!==app.selected&&step>0)return inOrder[at];
return inOrder[(at+step+inOrder.length)% inOrder.length]}
return { search, nextMatch };
})();
const in_trail = (() => {
function makeTrail(app){
const{model}=app;
const source=model.trail?model.trail.event:-1;
const events=numbers(model.trail?model.trail.after:[]);
const values=numbers(model.trail?model.trail.values:[]);
const sourceIn=withParents(model,source>=0?[source]:[]);
const reachedIn=withParents(model,events);
if(source>=0)events.add(source);
const touched=new Set();
for(const item of model.items){
if(!item.nodes.some((node)=>sourceIn.has(node)||reachedIn.has(node)))continue;
for(let each=item;each&&!touched.has(each.number);each=model.items[each.parent])touched.add(each.number)}
function stateOf(item){
const state=roundState(item);
return state==="source"&&item.children.length&&app.open.has(item.number)?"holds":state}
function roundState(item){
if(!touched.has(item.number))return "";
if(!item.nodes.length)return stateOfGroup(item);
const event=app.eventOf(item);
if(sourceIn.has(event))return "source";
return events.has(event)||reachedIn.has(event)?"bad":"later"}
function stateOfGroup(item){
let found="later";
for(const child of item.children){
const state=roundState(child);
if(state==="source")return "source";
if(state==="bad")found="bad"}
return found}
function mark(element,mark){
if(mark.plain!==undefined)markWord(element,mark);
if(source<0)return;
if(mark.from!==undefined&&mark.item===undefined)element.classList.toggle("bad",isBadLine(mark));
if(mark.item===undefined||mark.toggle!==undefined)return;
const state=stateOf(model.items[mark.item]);
for(const name of["source","holds","bad","later"])element.classList.toggle(name,state===name)}
function markWord(element,mark){
const item=model.items[mark.giver];
const given=item.nodes.length?model.events.gives[app.eventOf(item)]:[];
if(mark.out>=given.length)return;
const known=model.values.stats[given[mark.out]];
const text=[mark.plain,known?notFinite(known):""].filter(Boolean).join(" ");
if(element.textContent!==text)element.textContent=text;
element.classList.toggle("bad",mark.isBad&&values.has(given[mark.out]))}
function isBadLine(mark){
if(!mark.isBad)return false;
const item=model.items[mark.from];
if(!item||!item.nodes.length)return!item||stateOf(item)!=="later";
const given=model.events.gives[app.eventOf(item)];
if(given.length===0)return stateOf(item)!=="later";
return mark.out<given.length?values.has(given[mark.out]):given.some((value)=>values.has(value))}
return{source,events,values,stateOf,mark}}
function notFinite(known){
const words=[["nan","NaN"],["inf","inf"]];
return words.filter(([name])=>known[name]>0).map(([name,word])=>`${known[name].toLocaleString("en")} ${word}`).join(", ")}
function numbers(steps){
const found=new Set();
let last=0;
for(const step of steps){
last +=step;
found.add(last)}
return found}
function withParents(model,events){
const found=new Set();
for(const event of events){
for(let each=event;each>=0&&!found.has(each);each=model.events.parent[each])found.add(each)}
return found}
return { makeTrail };
})();
const in_marks = (() => {
const{itemWith}=in_data;
const{h}=in_dom;
const ORDER=["error","bug","likely","hint"];
function makeMarks(app){
const{model}=app;
const all=model.verdict?model.verdict.findings:[];
const byLine=new Map();
const byItem=new Map();
all.forEach((finding,number)=>{
if(finding.at)add(byLine,finding.at.file+":"+finding.at.line,number);
const item=finding.event>=0?itemWith(model,finding.event):null;
if(item)add(byItem,item.number,number)});
function ofItem(item){
const found=[...(byItem.get(item.number)||[])];
if(!app.open.has(item.number))item.children.forEach((child)=>found.push(...ofClosed(child)));
return found}
function ofClosed(item){
const found=[...(byItem.get(item.number)||[])];
item.children.forEach((child)=>found.push(...ofClosed(child)));
return found}
const worst=(numbers)=>numbers.reduce((best,each)=>(rank(all[each])<rank(all[best])?each:best),numbers[0]);
const words=(numbers)=>numbers.map((each)=>`${all[each].severity}: ${all[each].text}`).join("\n");
function sign(numbers){
if(!numbers.length)return "";
const go=(click)=>{
click.stopPropagation();
app.showFinding(worst(numbers))};
return h("button",{class:"mark "+all[worst(numbers)].severity,title:words(numbers),"aria-label":words(numbers),onclick:go},"!")}
function badges(drawn){
const found=[];
if(!byItem.size)return found;
for(const mark of drawn.marks){
const isBox=mark.item!==undefined&&mark.toggle===undefined&&(mark.c.startsWith("box")||mark.c.startsWith("group"));
if(!isBox)continue;
const numbers=ofItem(model.items[mark.item]);
if(numbers.length)found.push(badge(mark,numbers))}
return found}
function badge(mark,numbers){
const isCircle=mark.t==="circle";
const x=isCircle?mark.x+mark.r*0.8:mark.x+mark.w-3;
const y=isCircle?mark.y-mark.r*0.8:mark.y+3;
const group=svg("g",{class:"badge "+all[worst(numbers)].severity,transform:`translate(${x},${y})`,role:"button"});
const title=svg("title",{});
title.textContent=words(numbers);
const text=svg("text",{"text-anchor":"middle",y:4});
text.textContent="!";
group.append(title,svg("circle",{r:7.5}),text);
group.addEventListener("click",(click)=>{
click.stopPropagation();
app.showFinding(worst(numbers))});
return group}
return{
badges,
ofRow:(item)=>sign(ofItem(item)),
ofLine:(file,line)=>sign(byLine.get(file+":"+line)||[]),}}
function rank(finding){
return ORDER.indexOf(finding.severity)}
function add(map,key,number){
if(!map.has(key))map.set(key,[]);
map.get(key).push(number)}
function svg(tag,properties){
const element=document.createElementNS("http://www.w3.org/2000/svg",tag);
for(const[name,value]of Object.entries(properties))element.setAttribute(name,String(value));
return element}
return { makeMarks };
})();
const in_state = (() => {
const{itemWith}=in_data;
const SETTLED=250;
const TOGETHER=400;
function makeState(app){
const isFramed=window.parent!==window;
let isOpenTold=false;
let search="";
let isRestoring=false;
let isStarted=false;
let pushed=0;
let waiting=0;
function written(){
const parts=[];
if(app.selected>=0)parts.push("event="+app.selected);
if(app.selected>=0&&app.isHome)parts.push("card");
if(app.item&&app.selected>=0&&app.item!==itemWith(app.model,app.selected))parts.push("item="+app.item.number);
if(isOpenTold)parts.push("open="+[...app.open].sort((a,b)=>a-b).join("."));
if(search)parts.push("search="+encodeURIComponent(search));
if(app.overlays.chosen())parts.push("colour="+app.overlays.chosen());
const at=app.panes.flow&&app.panes.flow.place();
if(at&&isMoved)parts.push(`at=${Math.round(at.x)},${Math.round(at.y)},${at.k.toFixed(3)}`);
return "#"+parts.join("&")}
let isMoved=false;
function write(how){
if(isRestoring||isFramed)return;
const text=written();
if(text===location.hash||(text==="#"&&!location.hash))return;
try{
history[how](null,"",text)}catch{}}
function visited(){
const now=performance.now();
const isNew=isStarted&&now-pushed>TOGETHER;
pushed=now;
write(isNew?"pushState":"replaceState")}
function changed(){
clearTimeout(waiting);
waiting=setTimeout(()=>write("replaceState"),SETTLED)}
function restore(hash){
const said=new URLSearchParams(hash.replace(/^#/,""));
const event=Number(said.get("event")??-1);
const isEvent=Number.isInteger(event)&&event>=0&&event<app.model.events.size;
isRestoring=true;
try{
restoreOpen(said.get("open"));
restoreSearch(said.get("search")||"");
const item=said.has("item")?app.model.items[Number(said.get("item"))]:null;
if(isEvent)app.select(event,true,item||null);
else if(said.has("open"))app.drawAll();
if(said.has("card")||(!isEvent&&isStarted))app.goHome();
if((said.get("colour")||"")!==app.overlays.chosen())app.overlays.choose(said.get("colour")||"");
restorePlace(said.get("at"))}finally{
isRestoring=false}
return isEvent}
function restoreOpen(text){
isOpenTold=text!==null;
if(text===null)return;
const known=text.split(".").map(Number).filter((number)=>app.model.items[number]&&app.model.items[number].children.length);
app.open=new Set(known);
if(app.panes.flow)app.drawAll()}
function restoreSearch(text){
if(text===search)return;
if(state.box)state.box.value=text;
app.searchFor(text)}
function restorePlace(text){
const numbers=(text||"").split(",").map(Number);
isMoved=numbers.length===3&&numbers.every(Number.isFinite)&&numbers[2]>0;
if(isMoved)app.panes.flow.restore({x:numbers[0],y:numbers[1],k:Math.min(8,numbers[2])})}
const state={
box:null,
visited,
restore,
opened(){
isOpenTold=true;
changed()},
searched(query){
search=query.trim();
changed()},
coloured:changed,
moved(){
isMoved=true;
changed()},
link:()=>location.href.split("#")[0]+ written(),
listen(){
isStarted=true;
const follow=()=>{
if(location.hash!==written())restore(location.hash)};
window.addEventListener("popstate",follow);
const sheet=document.querySelector(".pane.flow");
if(sheet)for(const name of["wheel","pointerup"])sheet.addEventListener(name,()=>app.selected>=0&&state.moved(),{passive:true})},};
return state}
return { makeState };
})();
const in_share = (() => {
const{sampleOf}=in_data;
const{duration,h}=in_dom;
function shareButton(app){
const title="copy the answer, or the selected step, as Markdown";
return h("button",{title,class:"share",onclick:()=>copy(markdown(app))},"Copy")}
function markdown(app){
const parts=app.isHome&&app.model.verdict?[...diffLines(app.model.diff),...cardLines(app.model)]:stepLines(app);
return parts.join("\n")+ "\n"}
function cardLines({verdict,run}){
const lines=[`### ${plain(verdict.text)}`];
for(const row of verdict.rows)lines.push(row.kind==="heading"?`\n**${plain(row.cells[0][1])}**`:"- "+rowText(row));
for(const each of verdict.also)lines.push("- "+plain(each.text));
for(const finding of verdict.findings){
const often=finding.times>1?` (× ${finding.times.toLocaleString("en")})`:"";
lines.push("",`**${finding.severity}: ${plain(finding.text)}**${often}`,...finding.rows.map((row)=>"- "+rowText(row)))}
lines.push("","| | |","|---|---|",`| run | ${cell(run.name || "trace")} |`);
for(const line of verdict.about)lines.push(`| ${line.label} | ${cell(line.parts.map(([text]) => text).join(" "))} |`);
return lines}
function rowText(row){
const words=row.cells.map(([kind,text])=>(kind==="expression"||kind==="source"?code(text):plain(text)));
return words.join(" ")+(row.at?` at ${code(row.at.word)}`:"")}
function diffLines(diff){
if(!diff)return[];
const lines=[`### ${plain(diff.text)}`];
for(const section of diff.sections){
if(section.title)lines.push("",`**${plain(section.title)}**`);
for(const row of section.rows)lines.push(`- ${row.label} ${code([row.module, row.text].filter(Boolean).join("  "))}${row.at ? " at " + code(row.at.word) : ""}`)}
return[...lines,plain(diff.summary),""]}
function stepLines(app){
const{model,selected}=app;
if(selected<0)return[`### ${plain(model.run.name || "trace")}`];
const sample=sampleOf(model,selected);
const at=sample.at;
const file=at?(at.file>=0?model.files[at.file].name:at.path):"";
const lines=[`### ${code(sample.code || sample.name)}`,""];
const place=at?" at "+code(file+":"+at.line):"";
lines.push(`- ${sample.kind} ${plain(sample.module || sample.name)}${place}, event ${selected} of ${plain(model.run.name || "the trace")}`);
if(sample.error)lines.push(`- failed: ${plain(sample.error)}`);
model.events.takes[selected].forEach((value,place)=>lines.push(`- takes ${valueText(model, sample.roles[place], value)}`));
model.events.gives[selected].forEach((value,place)=>lines.push(`- gives ${valueText(model, sample.results[place], value)}`));
lines.push(`- took ${duration(model.events.spent[selected], model.tick)} (host time)`);
return lines}
function valueText(model,role,value){
const stats=model.values.stats[value];
const known=["mean","std","min","max","nan","inf"].filter((name)=>stats&&stats[name]!==undefined&&(stats[name]||name.length>3));
const words=known.map((name)=>`${name} ${stats[name]}`).join(", ");
const name=role?plain(role)+ " ":"";
return name+code(model.values.word[value])+(words?" ("+words+")":"")}
function plain(text){
return text.replace(/[\\`*_[\]<>#|~]/g,"\\$&")}
function cell(text){
return plain(text.replace(/\s+/g," "))}
function code(text){
const one=text.replace(/\s+/g," ");
const longest=Math.max(0,...(one.match(/`+/g)||[]).map((run)=>run.length));
const fence="`".repeat(longest+1);
return longest?`${fence} ${one} ${fence}`:`${fence}${one}${fence}`}
async function copy(text){
let isDone=true;
try{
await navigator.clipboard.writeText(text)}catch{
const field=h("textarea",{});
field.value=text;
document.body.append(field);
field.select();
isDone=document.execCommand("copy");
field.remove()}
say(isDone?"Copied as Markdown":"This browser did not allow copying")}
function say(text){
for(const earlier of document.querySelectorAll(".toast"))earlier.remove();
const toast=h("div",{class:"toast",role:"status"},text);
document.body.append(toast);
setTimeout(()=>toast.remove(),1600)}
return { shareButton, markdown };
})();
const in_help = (() => {
const{h}=in_dom;
const KEYS=[
["↑ ↓","the row above or below"],
["→ ←","open a row; close it, or go to the one around it"],
["Enter","open or close"],
["[ ]","the round before or after"],
["/","search; Enter goes to the next match, Esc ends it"],
["i t","iterations, timeline"],
["d","dark or light"],
["+ − 0","larger, smaller, all of it"],
["?","this help"],
];
const SEARCH=[
["softmax","names, expressions, variables, errors"],
["nan, inf","steps that gave such values"],
["op:addmm","a function or op; * is any letters"],
["shape:2,*,128","a tensor of that shape; * is one dimension"],
["line:42, file:model","steps at that line, in that file"],
["module:h.*","modules by their path"],
["kind:step","one kind of events"],
];
const HUES=[
["weights","weights: linear, convolution, embedding, matrix products"],
["norm","normalisation"],
["activation","activation"],
["attention","attention"],
["pool","pooling, padding"],
["dropout","dropout"],
["loss","loss, backward, optimizer"],
];
const BOXES=[
["border-color:var(--accent)","selected; its makers and users are tinted"],
["border-color:var(--red);background:var(--redtint)","failed, or a bad value was made here"],
["border-color:var(--red)","a bad value came by"],
["border-color:var(--red);border-style:dashed","it came by in another round"],
];
function helpButton(body){
const list=(rows,tag)=>h("dl",{},rows.map(([name,words])=>[h("dt",{},h(tag,{},name)),h("dd",{},words)]));
const hues=h("dl",{},HUES.map(([hue,words])=>[h("dt",{},h("i",{class:"dot "+hue})),h("dd",{},words)]));
const boxes=h("dl",{},BOXES.map(([style,words])=>[h("dt",{},h("i",{class:"sample",style})),h("dd",{},words)]));
const left=h("div",{},h("h3",{},"keys"),list(KEYS,"kbd"),h("h3",{},"search"),list(SEARCH,"code"));
const right=h("div",{},h("h3",{},"colours of steps"),hues,h("h3",{},"boxes"),boxes,h("h3",{},"to send it"),
h("p",{},"The page is one file and needs no network. Its address keeps what is selected, open and searched. Copy gives the answer, or the selected step, as Markdown; svg in the data flow saves the picture."));
const close=h("button",{onclick:()=>dialog.close()},"Close");
const dialog=h("dialog",{class:"help","aria-label":"help"},h("header",{},h("h2",{},"What is where"),close),h("div",{class:"columns"},left,right));
dialog.addEventListener("keydown",(key)=>key.stopPropagation());
const show=()=>{
if(!dialog.isConnected)body.append(dialog);
if(dialog.open)dialog.close();
else dialog.showModal()};
return{button:h("button",{title:"help, keys and colours","aria-label":"help",onclick:show},"?"),show}}
return { helpButton };
})();
const in_panes = (() => {
const{h}=in_dom;
const KEPT="torchglass-panes";
const STEP=24;
const LINES=[
{name:"steps",before:".pane.flow",size:"--steps",axis:"x",sign:1,least:150,of:".pane.steps",label:"width of the steps"},
{name:"side",before:".side",size:"--side",axis:"x",sign:-1,least:220,of:".side",label:"width of code and details"},
{name:"details",before:".pane.details",size:"--details",axis:"y",sign:-1,least:80,of:".pane.details",label:"height of the details"},
{name:"timeline",before:".pane.timeline",size:"--timeline",axis:"y",sign:-1,least:80,of:".pane.timeline",label:"height of the timeline"},
];
function adjustable(body,changed){
const sizes=kept();
for(const[size,value]of Object.entries(sizes))body.style.setProperty(size,`${value}px`);
for(const line of LINES){
const pane=(body.querySelector(line.before));
if(pane)pane.append(separator(body,line,sizes,changed))}}
function separator(body,line,sizes,changed){
const orientation=line.axis==="x"?"vertical":"horizontal";
const element=h("div",{class:`separator ${orientation}`,role:"separator",tabindex:0,"aria-orientation":orientation,"aria-label":line.label,"aria-valuenow":50});
const isWide=line.axis==="x";
const measured=()=>{
const box=(body.querySelector(line.of)).getBoundingClientRect();
return isWide?box.width:box.height};
const most=()=>(isWide?body.clientWidth:body.clientHeight)*0.6;
const set=(size)=>{
sizes[line.size]=Math.round(Math.max(line.least,Math.min(most(),size)));
body.style.setProperty(line.size,`${sizes[line.size]}px`);
element.setAttribute("aria-valuenow",String(Math.round((100*sizes[line.size])/ most())));
changed()};
let from={at:0,size:0};
element.addEventListener("pointerdown",(down)=>{
element.setPointerCapture(down.pointerId);
from={at:isWide?down.clientX:down.clientY,size:measured()};
down.preventDefault()});
element.addEventListener("pointermove",(move)=>{
if(!element.hasPointerCapture(move.pointerId))return;
set(from.size+line.sign*((isWide?move.clientX:move.clientY)- from.at))});
element.addEventListener("pointerup",()=>keep(sizes));
element.addEventListener("dblclick",()=>{
delete sizes[line.size];
body.style.removeProperty(line.size);
keep(sizes);
changed()});
element.addEventListener("keydown",(key)=>{
const[less,more]=isWide?["ArrowLeft","ArrowRight"]:["ArrowUp","ArrowDown"];
if(key.key!==less&&key.key!==more)return;
key.preventDefault();
key.stopPropagation();
set(measured()+ line.sign*(key.key===more?STEP:-STEP));
keep(sizes)});
return element}
function kept(){
try{
return JSON.parse(localStorage.getItem(KEPT)||"{}")}catch{
return{}}}
function keep(sizes){
try{
localStorage.setItem(KEPT,JSON.stringify(sizes))}catch{}}
return { adjustable };
})();
const in_scrubber = (() => {
const{itemWith,sampleOf,shownEvent,timesIn}=in_data;
const{duration,fill,h,link,safe}=in_dom;
const LEAST_ROUNDS=3;
const LEAST_WITHOUT_MODULES=8;
const ENOUGH_ROWS=18;
const FEW_ROWS=6;
const MOST_ROWS=64;
const USUAL_ROW=13;
const TALLEST_ROW=26;
const LOWEST_ROW=3;
const HEIGHT=200;
const LEAST_HEIGHT=96;
const LEAST_FOR_TEXT=9;
const LARGEST_TEXT=10.5;
const GUTTER=150;
const LARGEST_GUTTER=0.28;
const MOST_LOOPS=2;
const MUCH_LARGER=30;
const MEASURES={
rms:{
label:"size of the output (rms)",
isLog:true,
of:(model,event)=>{
const stats=statsOf(model,event);
return stats&&stats.mean!==undefined&&stats.std!==undefined?Math.hypot(stats.mean,stats.std):null},
word:(_,number)=>number.toPrecision(3),},
std:{
label:"spread of the output (σ)",
isLog:true,
of:(model,event)=>{
const stats=statsOf(model,event);
return stats&&stats.std!==undefined?stats.std:null},
word:(_,number)=>number.toPrecision(3),},
gradient:{
label:"size of the gradient (norm)",
isLog:true,
isSeries:true,
of:()=>null,
word:(_,number)=>number.toPrecision(3),},
update:{
label:"size of the update (norm)",
isLog:true,
isSeries:true,
of:()=>null,
word:(_,number)=>number.toPrecision(3),},
zeros:{
label:"zeros in the output",
isLog:false,
of:(model,event)=>{
const stats=statsOf(model,event);
return stats&&stats.zeros!==undefined?stats.zeros:null},
word:(_,number)=>`${Math.round(number).toLocaleString("en")} zeros`,},
time:{
label:"host time",
isLog:true,
of:(model,event)=>(model.events.spent[event]>=0?model.events.spent[event]:null),
word:(model,number)=>duration(number,model.tick),},};
function statsOf(model,event){
const value=model.events.gives[event][0];
return value===undefined?null:model.values.stats[value]||null}
function makeScrubber(app,pane){
const{model}=app;
const hasStats=Object.keys(model.values.stats).length>0;
const names=Object.keys(MEASURES).filter((name)=>name==="time"||(MEASURES[name].isSeries?!!model.series[name]:hasStats));
const options=names.map((name)=>h("option",{value:name},MEASURES[name].label));
const chooser=(h("select",{"aria-label":"what the colours show",onchange:()=>draw()},options));
const strips=h("div",{class:"strips"});
const legend=h("span",{class:"legend"});
pane.append(h("header",{},h("b",{},"Iterations"),chooser,legend,h("span",{class:"grow"}),h("span",{class:"dim"},"drag, or type a number")),strips);
const made=new Map();
function draw(){
if(pane.hidden)return;
const loops=shownLoops(app);
const shown=loops.map((loop)=>{
const strip=made.get(loop.number)||makeStrip(app,loop);
made.set(loop.number,strip);
return strip});
const elements=shown.map((strip)=>strip.element);
const isSame=elements.length===strips.children.length&&elements.every((each,at)=>strips.children[at]===each);
if(!isSame)strips.replaceChildren(...elements);
const ranges=shown.map((strip)=>strip.draw(chooser.value,shown.length));
const[low,high]=ranges[0]||[0,0];
const{word}=MEASURES[chooser.value];
fill(legend,h("span",{class:"dim"},word(model,low)),h("i",{class:"scale"}),h("span",{class:"dim"},word(model,high)),h("i",{class:"cell bad"}),h("span",{class:"dim"},"NaN or inf"))}
new ResizeObserver(draw).observe(pane);
return{draw,hasLoops:shownLoops(app).length>0,strips:()=>[...made.values()]}}
function shownLoops(app){
const{model}=app;
const isLoop=(item)=>item.hasRounds&&isLong(model,item)&&repeats(model,item);
const around=app.item?pathTo(model,app.item).filter(isLoop):[];
let loop=around[0];
if(!loop){
const loops=model.items.filter((item)=>isLoop(item)&&!pathTo(model,item).slice(0,-1).some(isLoop));
loop=loops.sort((a,b)=>weight(b)- weight(a))[0]}
if(!loop)return[];
const inner=around.slice(1);
if(!inner.length){
const nested=model.items.filter((item)=>isLoop(item)&&item!==loop&&pathTo(model,item).includes(loop)&&holdsModules(model,item));
inner.push(...nested.sort((a,b)=>weight(b)- weight(a)).slice(0,1))}
return[loop,...inner].slice(0,MOST_LOOPS)}
function isLong(model,loop){
const rounds=loop.slots.length;
return rounds>=LEAST_WITHOUT_MODULES||(rounds>=LEAST_ROUNDS&&holdsModules(model,loop))}
function pathTo(model,item){
const path=[item];
while(path[0].parent>=0)path.unshift(model.items[path[0].parent]);
return path}
function roundOf(model,loop,event){
let item=event<0?null:itemWith(model,event);
let at=item?item.nodes.indexOf(shownEvent(model,event)):-1;
while(item&&item!==loop){
at=item.slots[at];
item=model.items[item.parent]}
return item?at:-1}
function weight(item){
return item.children.reduce((sum,child)=>sum+weight(child),item.nodes.length)}
function holdsModules(model,item){
return item.children.some((child)=>(child.nodes.length>0&&sampleOf(model,child.nodes[0]).kind==="module")||holdsModules(model,child))}
function roundsOf(model,loop){
const rows=new Map();
const size=loop.slots.length;
const walk=(item,rounds)=>{
item.nodes.forEach((event,at)=>{
const sample=sampleOf(model,event);
const isModule=sample.kind==="module";
const path=isModule?sample.module:item.title;
const root=isModule?sample.root:"";
const key=`${isModule}${root} ${path}`;
const row=rows.get(key)||{name:path||root||sample.name,root,path,depth:path.split(".").length,isModule,events:[]};
rows.set(key,row);
(row.events[rounds[at]]=row.events[rounds[at]]||[]).push(event)});
for(const child of item.children)walk(child,child.slots.map((slot)=>rounds[slot]))};
const own=Array.from({length:size},(_,at)=>at);
for(const child of loop.children)walk(child,child.slots.map((slot)=>own[slot]));
const all=[...rows.values()];
const modules=all.filter((row)=>row.isModule);
const layers=modules.filter((row)=>row.path);
if(new Set(layers.map((row)=>row.root)).size>1){
for(const row of layers)row.name=`${row.root}.${row.path}`}
if(layers.length)return fewer(layers);
return fewer(modules.length?modules:all)}
function repeats(model,loop){
const known=repeating.get(loop);
if(known!==undefined)return known;
const isOften=roundsOf(model,loop).some((row)=>2*Object.keys(row.events).length>=loop.slots.length);
repeating.set(loop,isOften);
return isOften}
const repeating=new WeakMap();
function fewer(rows){
const isOuter=(row,all)=>all.some((other)=>other.root===row.root&&other.path.startsWith(`${row.path}.`));
const leaves=rows.filter((row)=>!isOuter(row,rows));
if(leaves.length<=ENOUGH_ROWS)return leaves;
let found=leaves;
for(let depth=Math.max(...rows.map((row)=>row.depth));depth>0;depth--){
const cut=rows.filter((row)=>row.depth<=depth);
const outer=cut.filter((row)=>!isOuter(row,cut));
if(outer.length<FEW_ROWS)break;
found=outer;
if(outer.length<=ENOUGH_ROWS)break}
return found.slice(0,MOST_ROWS)}
function makeStrip(app,loop){
const{model}=app;
const rows=roundsOf(model,loop);
const canvas=(h("canvas",{class:"heat",tabindex:0,role:"slider","aria-label":`iteration of ${loop.title}`,"aria-valuemin":1}));
const cursor=h("div",{class:"cursor","aria-hidden":true});
const tip=h("div",{class:"tip",hidden:true});
const number=(h("input",{type:"number",min:1,"aria-label":`go to iteration of ${loop.title}`}));
const of=h("span",{class:"dim"});
const lossKey=h("span",{class:"dim losses",hidden:true});
const title=h("code",{class:"dim",title:loop.title},loop.title);
const badRound=roundOf(model,loop,app.trail.source);
const pin=link(app,app.trail.source,{class:"pin",title:"where the first bad value was made",hidden:true},"first bad value");
const element=h("div",{class:"strip"},h("div",{class:"about"},title,h("label",{},number,of),lossKey),h("div",{class:"heatmap"},canvas,cursor,pin,tip));
let painted="";
let measure="";
let gutter=GUTTER;
let range=[0,0];
let cells=[];
function span(){
const around=model.items[loop.parent];
const[first,last]=timesIn(loop,around?app.shown(around).at:0);
if(last>first)return[first,last];
return timesIn(loop,loop.slots[Math.min(first,loop.slots.length-1)])}
const now=()=>app.rounds.get(loop.number)||0;
const numberOf=(at)=>(loop.numbers?loop.numbers[at]:at-span()[0]+ 1);
function goToNumber(wanted){
const[first,last]=span();
if(!loop.numbers){
go(wanted-1);
return}
const distance=(each)=>Math.abs(each-wanted);
const nearest=loop.numbers.reduce((best,each,at,all)=>(distance(each)<distance(all[best])?at:best),0);
if(nearest>=first&&nearest<last)go(nearest-first);
else app.goToRound(loop,nearest)}
function draw(name,strips){
const[first,last]=span();
const size=last-first;
const width=canvas.parentElement?canvas.parentElement.clientWidth:0;
gutter=Math.min(GUTTER,Math.round(width*LARGEST_GUTTER));
const key=[name,first,last,width,strips,document.documentElement.className].join();
if(key!==painted&&width>0){
if(measure!==name){
measure=name;
if(MEASURES[name].isSeries)cells=rows.map((row)=>seriesOf(row.root,row.path,name));
else cells=rows.map((row)=>Array.from({length:loop.slots.length},(_,at)=>cell(row.events[at],name)));
range=rangeOf(cells)}
paint(first,last,width,HEIGHT / strips);
painted=key}
const at=Math.min(now(),size-1);
const wide=(width-gutter)/ Math.max(1,size);
cursor.style.left=`${gutter + at * wide}px`;
cursor.style.width=`${Math.max(2, wide)}px`;
pin.hidden=badRound<first||badRound>=last;
pin.style.left=`${gutter + (badRound - first + 0.5) * wide}px`;
const total=loop.numbers?loop.total:size;
number.max=String(total);
if(document.activeElement!==number)number.value=String(numberOf(first+at));
of.textContent=`of ${total.toLocaleString("en")}`;
if(loop.numbers)of.textContent +=`, ${size.toLocaleString("en")} of them kept here`;
canvas.setAttribute("aria-valuemax",String(total));
canvas.setAttribute("aria-valuenow",String(numberOf(first+at)));
return range}
let starts=[];
function seriesOf(root,module,name){
if(!starts.length)starts=firstEvents(loop);
const squares=Array.from({length:loop.slots.length},()=>null);
for(const[owner,path,events,norms]of model.series[name]){
if(owner!==root||(module&&path!==module&&!path.startsWith(`${module}.`)))continue;
events.forEach((event,at)=>{
const round=lastBefore(starts,event);
const norm=norms[at];
if(round>=0)squares[round]=(squares[round]||0)+(norm===null?NaN:norm*norm)})}
return squares.map((sum)=>(sum===null?null:Math.sqrt(sum)))}
function cell(events,name){
let sum=0;
let known=0;
for(const event of events||[]){
const stats=statsOf(model,event);
if(stats&&(stats.nan||stats.inf))return NaN;
const found=MEASURES[name].of(model,event);
if(found===null)continue;
sum +=found;
known++}
return known?sum / known:null}
function paint(first,last,width,most){
const size=last-first;
const high=rowHeight(rows.length,most);
const labelled=Math.ceil(LEAST_FOR_TEXT / high);
const height=Math.max(1,rows.length)*high;
const ratio=window.devicePixelRatio||1;
canvas.width=width*ratio;
canvas.height=height*ratio;
canvas.style.width=`${width}px`;
canvas.style.height=`${height}px`;
const pen=(canvas.getContext("2d"));
const style=getComputedStyle(document.documentElement);
const colour=(name)=>style.getPropertyValue(`--${name}`).trim();
pen.scale(ratio,ratio);
pen.font=`${Math.min(LARGEST_TEXT, Math.max(high, LEAST_FOR_TEXT))}px ${colour("mono")}`;
const room=width-gutter;
const columns=Math.max(1,Math.min(size,Math.floor(room)));
const wide=room / columns;
const[low,top]=range;
rows.forEach((row,at)=>{
const y=at*high;
if(at % labelled===0){
pen.globalAlpha=1;
pen.fillStyle=colour("dim");
pen.fillText(fitted(pen,safe(row.name),gutter-12),4,y+Math.max(high,LEAST_FOR_TEXT)/ 2+3.5)}
for(let column=0;column<columns;column++){
const number=worst(cells[at],first+Math.floor((column*size)/ columns),first+Math.ceil(((column+1)*size)/ columns));
if(number===null)continue;
pen.fillStyle=Number.isNaN(number)?colour("red"):colour("cell");
pen.globalAlpha=Number.isNaN(number)?1:0.06+0.86*share(number,low,top);
pen.fillRect(gutter+column*wide,y,Math.max(0.5,wide>5?wide-1:wide),high-(high>7?1:0))}});
pen.globalAlpha=1;
paintLoss(pen,first,last,room,height,colour)}
function paintLoss(pen,first,last,room,height,colour){
const curve=lossOf(app,loop);
const points=curve.points.filter(([round])=>round>=first&&round<last);
const known=points.map(([,loss])=>loss).filter(Number.isFinite);
lossKey.hidden=known.length<2;
if(known.length<2)return;
const ends=[Math.min(...known),Math.max(...known)];
const isLog=ends[0]>0&&ends[1]>MUCH_LARGER*ends[0];
const levelOf=(loss)=>(isLog?Math.log(loss):loss);
const[low,high]=ends.map(levelOf);
fill(lossKey,h("i",{}),`${safe(curve.name)} ${ends[0].toPrecision(3)} … ${ends[1].toPrecision(3)}${isLog ? ", log scale" : ""}`);
const x=(round)=>gutter+((round-first+0.5)/(last-first))*room;
const y=(loss)=>(high>low?5+((high-levelOf(loss))/(high-low))*(height-10):height / 2);
for(const[width,name]of([[4,"paper"],[1.6,"loss"]])){
pen.beginPath();
let isOpen=false;
for(const[round,loss]of points){
if(Number.isFinite(loss)){
if(isOpen)pen.lineTo(x(round),y(loss));
else pen.moveTo(x(round),y(loss))}
isOpen=Number.isFinite(loss)}
pen.lineWidth=width;
pen.strokeStyle=colour(name);
pen.stroke()}
pen.fillStyle=colour("red");
for(const[round,loss]of points){
if(Number.isFinite(loss))continue;
pen.beginPath();
pen.arc(x(round),height-5,2.5,0,7);
pen.fill()}}
function rangeOf(all){
let low=Infinity;
let high=-Infinity;
for(const row of all){
for(const number of row){
if(number===null||!Number.isFinite(number))continue;
if(number>0||!MEASURES[measure].isLog)low=Math.min(low,number);
high=Math.max(high,number)}}
return(low<=high?[low,high]:[0,0])}
function share(number,low,high){
if(high<=low)return 0.5;
if(!MEASURES[measure].isLog)return(number-low)/(high-low);
if(number<=0)return 0;
return(Math.log(number)- Math.log(low))/(Math.log(high)- Math.log(low))}
let waiting=-1;
function go(at){
const[first,last]=span();
const wanted=Math.max(0,Math.min(last-first-1,at));
if(wanted===now()&&waiting<0)return;
const isUnderWay=waiting>=0;
waiting=wanted;
if(isUnderWay)return;
requestAnimationFrame(()=>{
const to=waiting;
waiting=-1;
const same=sameIn(to);
if(same>=0)app.select(same,false);
else app.scrub(loop,to,span()[0]+ to)})}
function sameIn(to){
const isInside=app.item!==null&&app.item.nodes.length>0&&pathTo(model,app.item).includes(loop);
if(!isInside)return -1;
const{module,root,kind}=sampleOf(model,app.selected);
const row=kind==="module"?rows.find((each)=>each.isModule&&each.path===module&&each.root===root):undefined;
const events=row?row.events[span()[0]+ to]:undefined;
return events?events[0]:-1}
function place(pointer){
const box=canvas.getBoundingClientRect();
const[first,last]=span();
const at=Math.floor(((pointer.clientX-box.left-gutter)/(box.width-gutter))*(last-first));
const row=Math.floor(((pointer.clientY-box.top)/ box.height)*rows.length);
return{at:Math.max(0,Math.min(last-first-1,at)),row,first,isOver:pointer.clientX>=box.left+gutter}}
canvas.addEventListener("pointerdown",(down)=>{
const{at,isOver}=place(down);
if(!isOver)return;
canvas.setPointerCapture(down.pointerId);
go(at)});
canvas.addEventListener("pointermove",(move)=>{
const{at,row,first,isOver}=place(move);
if(canvas.hasPointerCapture(move.pointerId))go(at);
const number=isOver&&rows[row]?cells[row][first+at]:null;
tip.hidden=number===null||number===undefined;
if(number===null||number===undefined)return;
const word=Number.isNaN(number)?"NaN or inf":MEASURES[measure].word(model,number);
tip.textContent=safe(`${rows[row].name} · iteration ${numberOf(first + at).toLocaleString("en")} · ${word}`);
tip.style.left=`${Math.min(canvas.clientWidth - 220, move.clientX - canvas.getBoundingClientRect().left + 12)}px`});
canvas.addEventListener("pointerleave",()=>{
tip.hidden=true});
canvas.addEventListener("dblclick",(click)=>{
const{at,row,first}=place((click));
const events=rows[row]?rows[row].events[first+at]:undefined;
if(events)app.select(events[0])});
canvas.addEventListener("keydown",(key)=>{
const steps={ArrowLeft:-1,ArrowRight:1,PageUp:-10,PageDown:10};
const by=steps[(key.key)];
const[first,last]=span();
let to=by===undefined?-1:Math.max(0,now()+ by);
if(key.key==="Home")to=0;
if(key.key==="End")to=last-first-1;
if(to<0)return;
key.preventDefault();
go(to)});
number.addEventListener("change",()=>{
if(number.value!=="")goToNumber(Math.round(Number(number.value)))});
return{element,draw,rows,loop}}
function rowHeight(rows,most){
const usual=Math.min(USUAL_ROW,Math.floor(most / Math.max(1,rows)));
const tall=Math.min(TALLEST_ROW,Math.floor(Math.min(most,LEAST_HEIGHT)/ Math.max(1,rows)));
return Math.max(LOWEST_ROW,usual,tall)}
function lossOf(app,loop){
const{model}=app;
const found=new Map();
const givers=[];
const walk=(item,rounds)=>{
if(item.hue==="loss"){
givers.push(item);
item.nodes.forEach((event,at)=>{
const stats=statsOf(model,event);
const isScalar= /\[\]$/.test(model.values.word[model.events.gives[event][0]]||"");
if(stats&&isScalar)found.set(rounds[at],stats.nan||stats.inf?NaN:stats.mean)})}
for(const child of item.children)walk(child,child.slots.map((slot)=>rounds[slot]))};
for(const child of loop.children)walk(child,child.slots);
if(!found.size){
const about=((model.verdict&&model.verdict.about)||[]).find((line)=>line.points.length);
const starts=firstEvents(loop);
for(const[event,loss]of everyLoss(model,about?about.points:[])){
const round=lastBefore(starts,event);
if(round>=0)found.set(round,loss===null?NaN:loss)}}
const name=(givers.length>1&&givers[givers.length-1].variable)||"loss";
return{name,points:[...found].sort((a,b)=>a[0]- b[0])}}
function everyLoss(model,points){
const item=points.length?itemWith(model,points[0][0]):null;
if(!item||!points.every(([event])=>model.itemOf.get(event)===item))return points;
return item.nodes.flatMap((event)=>{
const stats=model.values.stats[model.events.takes[event][0]];
if(!stats)return[];
return[([event,stats.nan||stats.inf?null:stats.mean??null])]})}
function firstEvents(loop){
const found=new Array(loop.slots.length).fill(Infinity);
const walk=(item,rounds)=>{
item.nodes.forEach((event,at)=>{
found[rounds[at]]=Math.min(found[rounds[at]],event)});
for(const child of item.children)walk(child,child.slots.map((slot)=>rounds[slot]))};
for(const child of loop.children)walk(child,child.slots);
for(let at=found.length-2;at>=0;at--){
if(found[at]===Infinity)found[at]=found[at+1]- 0.5}
return found}
function lastBefore(sorted,number){
let low=0;
let high=sorted.length;
while(low<high){
const middle=(low+high)>>1;
if(sorted[middle]<=number)low=middle+1;
else high=middle}
return low-1}
function worst(row,from,to){
let found=null;
for(let at=from;at<to;at++){
const number=row[at];
if(number===null||number===undefined)continue;
if(Number.isNaN(number))return NaN;
if(found===null||number>found)found=number}
return found}
function fitted(pen,text,room){
if(pen.measureText(text).width<=room)return text;
let from=0;
while(from<text.length&&pen.measureText(`…${text.slice(from)}`).width>room)from++;
return `…${text.slice(from)}`}
return { makeScrubber, shownLoops, roundsOf };
})();
const in_app = (() => {
const{itemWith,sampleOf,opened,read,roundWord,seenFrom,shownEvent,sourceValue,timesIn}=in_data;
const{h,link,safe}=in_dom;
const{measureOn}=in_letters;
const{makeCode}=in_code;
const{makeDetails}=in_details;
const{makeDiff}=in_diff;
const{makeFlow}=in_flow;
const{adjustable}=in_panes;
const{makeScrubber}=in_scrubber;
const{makeSteps}=in_steps;
const{makeTimeline}=in_timeline;
const{nextMatch,search}=in_search;
const{helpButton}=in_help;
const{makeMarks}=in_marks;
const{makeOverlays}=in_overlays;
const{shareButton}=in_share;
const{makeState}=in_state;
const{makeTrail}=in_trail;
const MOST_READERS=200;
const MOST_OPENED_BY_SEARCH=60;
const OWN_COUNTS=4;
class App{
constructor(model){
this.model=model;
this.open=opened(model);
this.rounds=new Map();
this.selected=-1;
this.item=null;
this.near=new Map();
this.found=null;
this.before=null;
this.process=null;
this.panes={};
this.isHome=true;
this.finding=-1;
this.trail=makeTrail(this);
this.marks=makeMarks(this);
this.diff=makeDiff(this);
this.state=makeState(this);
this.overlays=makeOverlays(this);
this.shows=(item)=>this.process===null||this.processOf(item)===this.process}
processOf(item){
const event=item.nodes.length?item.nodes[0]:this.firstInside(item);
return sampleOf(this.model,event).process}
emptyWord(){
if(this.model.run.complete)return "Nothing was recorded: no module or torch function ran inside the block.";
return "Nothing was written before the recording stopped."}
shown(item){
let at=0;
let isThere=true;
for(const each of this.pathTo(item)){
const[first,last]=timesIn(each,at);
isThere=isThere&&last>first;
at=last>first?first+Math.min(this.rounds.get(each.number)||0,last-first-1):Math.min(first,each.slots.length-1)}
return{at,isThere}}
pathTo(item){
const path=[];
for(let each=item;each;each=this.model.items[each.parent])path.unshift(each);
return path}
eventOf(item){
return item.nodes.length?item.nodes[this.shown(item).at]:-1}
firstInside(item){
while(!item.nodes.length&&item.children.length){
item=item.children.find((child)=>this.shown(child).isThere)||item.children[0]}
return this.eventOf(item)}
select(event,isFollowed=true,item=null){
if(!(event>=0&&event<this.model.events.size))return;
const inner=itemWith(this.model,event);
this.selected=event;
this.isHome=false;
this.item=item||inner;
let isNew=false;
if(inner){
this.turnTo(inner,inner.nodes.indexOf(shownEvent(this.model,event)));
isNew=this.openAround(this.item)}
this.findNear();
if(isNew)this.panes.flow.draw();
this.panes.steps.draw(isFollowed);
this.panes.flow.light(isFollowed);
this.panes.code.draw(isFollowed);
this.panes.details.draw();
this.diff.follow(event);
this.panes.timeline.draw();
this.panes.scrubber.draw();
this.say();
this.state.visited()}
openAround(item){
let isNew=false;
for(const each of this.pathTo(item).slice(0,-1)){
isNew=isNew||!this.open.has(each.number);
this.open.add(each.number)}
return isNew}
selectItem(item,isFollowed=true){
const event=this.eventOf(item);
if(event>=0)this.select(event,isFollowed);
else this.select(this.firstInside(item),isFollowed,item)}
selectEdge({from,to,out,into}){
const{items}=this.model;
const target=items[to];
const isMade=from>=0&&!(target&&target.parent===from);
const item=isMade?items[from]:target;
if(!item)return;
this.selectItem(item);
this.panes.details.point(isMade?"gives":"takes",isMade?out:into)}
say(){
const{item}=this;
const{error}=sampleOf(this.model,this.selected);
const words=item?[item.title||item.code,item.detail,item.often]:[];
if(item&&item.gives)words.push("gives "+item.gives);
if(error)words.push("failed: "+error);
this.panes.said.textContent=safe(words.filter(Boolean).join(", "))}
goHome(){
this.isHome=true;
this.panes.details.draw();
this.state.visited()}
showFinding(number){
const{event}=this.model.verdict.findings[number];
if(event>=0)this.select(event);
this.finding=number;
this.goHome();
this.finding=-1;
const shown=this.panes.details.body.querySelector(`[data-number="${number}"]`);
if(shown)shown.scrollIntoView({block:"nearest"})}
showPlace(file,line){
if(file<0)return;
if(this.model.byLine.has(file+":"+line))this.selectLine(file,line);
else this.panes.code.show(file,line)}
showHeaviest(){
const{byLine,files}=this.model;
const found=new Map();
for(const events of byLine.values()){
const at=sampleOf(this.model,events[0]).at;
if(!at)continue;
const key=at.file+":"+at.function;
const of=found.get(key)||{file:at.file,first:at.line,lines:0,events:0};
found.set(key,{...of,first:Math.min(of.first,at.line),lines:of.lines+1,events:of.events+events.length})}
const isOwn=({file})=>files[file].pieces.length===1&&files[file].pieces[0].first===1;
const weight=(each)=>each.lines*(isOwn(each)?OWN_COUNTS:1);
const[most]=[...found.values()].sort((a,b)=>weight(b)- weight(a)||b.events-a.events);
if(most)this.panes.code.show(most.file,most.first)}
turnTo(item,at){
for(let each=item;each;each=this.model.items[each.parent]){
const slot=each.slots[at];
this.rounds.set(each.number,at-timesIn(each,slot)[0]);
at=slot}}
findNear(){
const{model,selected}=this;
const{events,values}=model;
this.near=new Map();
if(this.item&&!this.item.nodes.length){
this.findNearGroup(this.item);
return}
events.takes[selected].forEach((value,at)=>{
if(!values.parameters.has(value))this.addNear(values.maker[sourceValue(model,selected,at)],"maker")});
for(const value of events.gives[selected]){
for(const event of(model.readers.get(value)||[]).slice(0,MOST_READERS)){
if(event>selected&&!isInside(model,event,selected))this.addNear(event,"reader")}}}
addNear(event,word){
if(event<0)return;
const seen=seenFrom(this.model,event,this.selected);
const item=seen>=0?itemWith(this.model,seen):null;
if(item&&item!==this.item)this.near.set(item.number,word)}
findNearGroup(item){
const around=this.model.items[item.parent];
const beside=around?around.children:this.model.top;
const place=beside.indexOf(item);
for(const{from,to}of around?this.model.levels.get(around.number).edges:this.model.levels.get(-1).edges){
if(to===place&&from>=0&&from!==place)this.near.set(beside[from].number,"maker");
if(from===place&&to>=0&&to!==place)this.near.set(beside[to].number,"reader")}}
toggle(item){
if(!item.children.length)return;
if(this.open.has(item.number))this.open.delete(item.number);
else this.open.add(item.number);
this.state.opened();
this.drawAll(item.number)}
openAll(){
const isOutermost=(item)=>item.parent<0||this.open.has(item.parent);
const closed=this.model.items.filter((item)=>item.children.length&&!this.open.has(item.number)&&isOutermost(item));
for(const item of closed)this.open.add(item.number);
this.state.opened();
this.drawAll()}
closeAll(){
this.open.clear();
this.state.opened();
const outermost=this.item?this.pathTo(this.item)[0]:null;
if(outermost&&outermost!==this.item)this.selectItem(outermost);
this.drawAll(outermost?outermost.number:undefined)}
selectLine(file,line){
const events=this.model.byLine.get(file+":"+line);
if(!events||events.includes(this.selected))return;
this.select(events.reduce((best,event)=>(this.isWider(event,best)?event:best),events[0]))}
isWider(event,other){
const a=sampleOf(this.model,event).at;
const b=sampleOf(this.model,other).at;
const lines=a.endLine-a.line;
const otherLines=b.endLine-b.line;
return lines>otherLines||(a.endLine===b.endLine&&a.endCol-a.col>b.endCol-b.col)}
lineButtons(){
const at=this.selected>=0?sampleOf(this.model,this.selected).at:null;
const events=at?this.model.byLine.get(at.file+":"+at.line)||[]:[];
const number=events.indexOf(this.selected);
if(events.length<2||number<0)return[];
return turner(number,events.length,(to)=>this.select(events[to]),`${number + 1} of ${events.length.toLocaleString("en")} at line ${at.line}`)}
roundButtons(){
for(let item=this.item;item;item=this.model.items[item.parent]){
const around=this.model.items[item.parent];
const[first,last]=timesIn(item,around?this.shown(around).at:0);
const size=last-first;
if(size<2)continue;
const now=this.rounds.get(item.number)||0;
return turner(now,size,(to)=>this.turn(item,to),roundWord(item,first+now,item.slots[first]))}
return[]}
turn(item,to){
this.rounds.set(item.number,to);
const own=this.item||item;
if(!own.nodes.length)this.selectItem(own,false);
else this.select(this.shown(own).isThere?this.eventOf(own):this.firstInside(item),false)}
scrub(loop,to,at){
const isInside=this.item&&this.pathTo(this.item).includes(loop);
if(isInside)this.turn(loop,to);
else this.goToRound(loop,at)}
goToRound(loop,at){
this.turnTo(loop,at);
this.selectItem(loop,false)}
searchFor(query){
this.found=search(this,query);
if(this.found&&!this.before){
this.before={open:new Set(this.open),selected:this.selected,place:this.panes.flow.place()}}
if(this.found){
const{around}=this.found;
const before=this.open.size;
if(around.size<MOST_OPENED_BY_SEARCH)for(const number of around)this.open.add(number);
this.drawFound(this.open.size>before)}else if(this.before)this.endSearch(this.before);
this.countFound();
this.state.searched(query)}
endSearch({open,selected,place}){
this.before=null;
const was=this.open;
this.open=open;
if(this.item&&this.selected!==selected)this.openAround(this.item);
this.drawFound(was.size!==open.size||[...was].some((number)=>!open.has(number)));
if(this.selected===selected)this.panes.flow.restore(place)}
countFound(){
const{found}=this;
const size=found?found.count.toLocaleString("en"):"";
const at=found?found.inOrder.indexOf(this.selected):-1;
this.panes.count.textContent=at<0?size:`${(at + 1).toLocaleString("en")} of ${size}`}
nextFound(step){
const event=this.found?nextMatch(this,step):-1;
if(event>=0)this.select(event);
this.countFound()}
save(kind,text){
const name=(this.model.run.name||"torchglass").replace(/[^\w.-]+/g,"_");
const href=URL.createObjectURL(new Blob([text],{type:"image/svg+xml"}));
h("a",{href,download:`${name}.${kind}`}).click()}
drawAll(held){
this.drawFound(true,held);
this.panes.details.draw();
this.panes.scrubber.draw()}
drawFound(isNew,held){
if(isNew)this.panes.flow.draw(held);
else this.panes.flow.light();
this.panes.steps.draw(false);
this.panes.code.draw(false);
this.panes.timeline.draw()}
step(by){
const rows=this.panes.steps.rows();
const at=rows.findIndex((row)=>row.item===this.item);
const row=rows[Math.max(0,Math.min(rows.length-1,at<0?0:at+by))];
if(row)this.selectItem(row.item)}
stepIn(){
if(!this.item)return;
if(this.item.children.length&&!this.open.has(this.item.number))this.toggle(this.item);
else this.step(1)}
stepOut(){
if(!this.item)return;
const around=this.model.items[this.item.parent];
if(this.item.children.length&&this.open.has(this.item.number))this.toggle(this.item);
else if(around)this.selectItem(around)}}
function isInside(model,event,around){
while(event>around)event=model.events.parent[event];
return event===around}
function turner(now,size,go,words){
return[
h("button",{title:"before","aria-label":"the one before",disabled:now===0,onclick:()=>go(now-1)},"‹"),
h("span",{},words),
h("button",{title:"next","aria-label":"the next one",disabled:now===size-1,onclick:()=>go(now+1)},"›"),
]}
const TABS={steps:"Steps",flow:"Data flow",code:"Code"};
const EXAMPLES="softmax   op:matmul   shape:2,*,128   line:42   module:h.*";
function build(app,body){
const pane=(name,label)=>h("section",{class:"pane "+name,"data-pane":name,"aria-label":label});
const panes={
steps:pane("steps","steps"),
flow:pane("flow","data flow"),
code:pane("code","code"),
details:pane("details","details"),
timeline:pane("timeline","timeline"),
scrubber:pane("scrubber","iterations"),};
panes.timeline.hidden=true;
const said=h("div",{class:"said",role:"status"});
const found=h("span",{class:"count"});
const{box,ask}=searchBox(app);
const time=h("button",{"aria-pressed":"false",onclick:()=>showTime()},"Timeline");
const showTime=()=>{
panes.timeline.hidden=!panes.timeline.hidden;
time.classList.toggle("on",!panes.timeline.hidden);
time.setAttribute("aria-pressed",String(!panes.timeline.hidden));
app.panes.timeline.draw()};
const rounds=h("button",{"aria-pressed":"true",class:"on",onclick:()=>showRounds()},"Iterations");
const showRounds=()=>{
panes.scrubber.hidden=!panes.scrubber.hidden;
rounds.classList.toggle("on",!panes.scrubber.hidden);
rounds.setAttribute("aria-pressed",String(!panes.scrubber.hidden));
app.panes.scrubber.draw()};
const isDark=()=>document.documentElement.classList.contains("dark");
const dark=h("button",{title:"dark or light","aria-label":"dark or light",onclick:()=>setDark(!isDark())},"☾");
const tabs=h("nav",{class:"tabs"},Object.entries(TABS).map(([name,label])=>h("button",{"data-tab":name,onclick:()=>setTab(name)},label)));
const setTab=(name)=>{
body.setAttribute("data-tab",name);
for(const each of tabs.children)each.classList.toggle("on",each.getAttribute("data-tab")===name);
if(app.panes.flow)app.drawAll()};
const help=helpButton(body);
const search=h("label",{class:"search"},box,found,h("kbd",{},"/"));
const side=h("div",{class:"side"},panes.code,panes.details);
body.append(
h("header",{class:"bar"},about(app),processes(app),h("span",{class:"grow"}),search,rounds,time,shareButton(app),dark,help.button),
failure(app)||"",
tabs,
h("main",{class:"panes"},panes.steps,panes.flow,side),
panes.scrubber,
panes.timeline,
said,
);
app.panes.count=found;
app.panes.said=said;
app.panes.steps=makeSteps(app,panes.steps);
app.panes.flow=makeFlow(app,panes.flow);
app.overlays.build(panes.flow);
app.panes.code=makeCode(app,panes.code);
app.panes.details=makeDetails(app,panes.details);
app.diff.build(body,panes.code);
app.panes.timeline=makeTimeline(app,panes.timeline);
app.panes.scrubber=makeScrubber(app,panes.scrubber);
if(!app.panes.scrubber.hasLoops){
panes.scrubber.hidden=true;
rounds.hidden=true}
adjustable(body,()=>app.panes.timeline.draw());
setTab("flow");
keys(app,box,ask,{t:showTime,i:()=>rounds.hidden||showRounds(),d:()=>dark.click(),"?":help.show});
app.state.box=box}
function about(app){
const{run}=app.model;
const took=run.took?" · "+run.took:"";
const name=run.name?h("span",{class:"name",title:run.name},run.name):"";
const size=`${run.events.toLocaleString("en")} events${took}${run.complete ? "" : " · incomplete"}`;
return[h("h1",{class:"logo"},"torchglass"),name,h("span",{class:"dim size"},size)]}
function searchBox(app){
const box=(h("input",{type:"search",placeholder:EXAMPLES,"aria-label":"search",spellcheck:"false"}));
let waiting=0;
let asked="";
const ask=()=>{
clearTimeout(waiting);
if(asked===box.value)return;
asked=box.value;
app.searchFor(asked)};
box.addEventListener("input",()=>{
clearTimeout(waiting);
waiting=setTimeout(ask,40)});
return{box,ask}}
function failure(app){
const{run}=app.model;
const item=run.failed>=0?itemWith(app.model,run.failed):null;
if(run.failed<0)return "";
const path=item?app.pathTo(item):[];
const links=path.map((each,at)=>{
const event=each===item?run.failed:app.firstInside(each);
return[at?" › ":"",link(app,event,{},each.title||each.code||"repeat")]});
return h("div",{class:"failure",role:"alert"},h("b",{title:run.error},"✗ "+run.error),h("span",{class:"way"},links))}
function processes(app){
const all=[...new Set(app.model.samples.map((sample)=>sample.process))];
if(all.length<2)return "";
const choose=()=>{
app.process=chooser.value===""?null:Number(chooser.value);
app.drawAll()};
const options=all.map((each)=>h("option",{value:each},"process "+each));
const every=h("option",{value:""},`all ${all.length} processes`);
const chooser=(h("select",{"aria-label":"process",onchange:choose},every,options));
return chooser}
function setDark(isDark){
document.documentElement.classList.toggle("dark",isDark);
try{
localStorage.setItem("torchglass-dark",isDark?"1":"")}catch{}
if(!window.torchglass)return;
window.torchglass.panes.timeline.draw();
window.torchglass.panes.scrubber.draw()}
function wantsDark(){
try{
const kept=localStorage.getItem("torchglass-dark");
if(kept!==null)return kept==="1"}catch{}
return window.matchMedia("(prefers-color-scheme: dark)").matches}
function keys(app,box,ask,more){
const clear=()=>{
box.value="";
ask()};
const does={
"/":()=>box.focus(),
ArrowDown:()=>app.step(1),
ArrowUp:()=>app.step(-1),
j:()=>app.step(1),
k:()=>app.step(-1),
ArrowRight:()=>app.stepIn(),
ArrowLeft:()=>app.stepOut(),
Enter:()=>app.item&&app.toggle(app.item),
"[":()=>press(app,0),
"]":()=>press(app,2),
"+":()=>app.panes.flow.zoom(1.25),
"-":()=>app.panes.flow.zoom(0.8),
0:()=>app.panes.flow.fit(),
Escape:clear,
...more,};
box.addEventListener("keydown",(key)=>{
if(key.key==="Escape"){
clear();
box.blur()}
if(key.key==="Enter"){
ask();
app.nextFound(key.shiftKey?-1:1)}});
document.addEventListener("keydown",(key)=>{
const target=(key.target);
const isTyping=["SELECT","INPUT","TEXTAREA"].includes(target.tagName);
if(key.ctrlKey||key.metaKey||key.altKey||isTyping||key.defaultPrevented)return;
if(key.key==="Enter"&&target.closest("button, a, [role=separator]"))return;
const action=does[key.key];
if(!action)return;
key.preventDefault();
action()})}
function press(app,which){
const buttons=app.roundButtons();
if(buttons.length)buttons[which].click()}
function element(id){
return document.getElementById(id)}
async function unpacked(){
const packed=Uint8Array.from(atob(element("data").textContent.trim()),(letter)=>letter.charCodeAt(0));
const stream=new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
return JSON.parse(await new Response(stream).text())}
async function start(){
document.documentElement.classList.toggle("dark",wantsDark());
const body=element("page");
try{
measureOn(document);
const app=new App(read(await unpacked()));
window.torchglass=app;
document.documentElement.classList.add("live");
body.replaceChildren();
build(app,body);
document.title=safe((app.model.run.name||"trace")+ " · torchglass");
const{failed}=app.model.run;
app.drawAll();
const{diff,verdict}=app.model;
const answer=diff?diff.event:verdict&&verdict.kind==="bad"?verdict.event:failed;
const isLinked=app.state.restore(location.hash);
if(!isLinked&&answer>=0){
app.select(answer);
app.goHome()}else if(!isLinked&&verdict&&verdict.findings.length){
const{at}=verdict.findings[0];
if(at&&at.file>=0)app.panes.code.show(at.file,at.line)}else if(!isLinked)app.showHeaviest();
app.state.listen();
document.documentElement.setAttribute("data-ready","")}catch(error){
const words=`This page could not be shown (${(error).message}). It needs a browser of 2023 or later; torchglass show prints the same trace as text.`;
document.documentElement.classList.add("live");
body.replaceChildren(h("p",{class:"nothing"},words));
throw error}}
start();
return {  };
})();

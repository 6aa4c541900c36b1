// Built from web/ by `make page`. Do not edit.
const in_letters = (() => {
const NARROW="ijl.,:;'|!I()[]{}/\\ ft`\"°·",WIDE="mwMW@%—…",CAPITALS="ABCDEFGHJKLNOPQRSTUVXYZ&";
const MONO=0.602;
let pen=null;
let family="";
function measureOn(page){
pen=page.createElement("canvas").getContext("2d");
family=getComputedStyle(page.body).fontFamily}
function width(text,size,isMono=false,isBold=false){
if(pen&&!isMono){
pen.font=`${isBold ? 600 : 400} ${size}px ${family}`;
return pen.measureText(text).width}
let total=0;
for(const letter of text)total +=isMono?(letter.codePointAt(0)>0x2e80?2*MONO:MONO):part(letter);
return total*size*(isBold?1.06:1)}
function part(letter){
if(NARROW.includes(letter))return 0.31;
if(WIDE.includes(letter))return 0.86;
if(CAPITALS.includes(letter))return 0.67;
if(letter>="0"&&letter<="9")return 0.575;
return letter.codePointAt(0)>0x2e80?1.05:0.545}
return { measureOn, width };
})();
const in_columns = (() => {
function coordinates(level,gap,gapLane){
const{cells,layers}=level;
cells.forEach((cell,at)=>{cell.id=at;});
const conflicts=crossingLanes(layers);
const four=[];
for(const isUp of[true,false]){
for(const isLeft of[true,false]){
const rows=(isUp?layers:layers.slice().reverse()).map((layer)=>(isLeft?layer:layer.slice().reverse()));
const blocks=align(cells,rows,isUp?"up":"down",isLeft?1:-1,conflicts);
const x=compact(cells,rows,blocks,isLeft,gap,gapLane);
four.push(isLeft?x:x.map((each)=>-each))}}
return middle(four,cells)}
function crossingLanes(layers){
const marked=new Set();
for(let at=0;at+1<layers.length;at++){
const lanes=[],others=[];
for(const cell of layers[at]){
for(const below of cell.down)(cell.node||below.node?others:lanes).push([cell,below])}
if(lanes.length*others.length>250000)continue;
for(const[a,b]of others){
for(const[c,d]of lanes){
if((a.place-c.place)*(b.place-d.place)<0){marked.add(a.id+">"+b.id);break;}}}}
return marked}
function neighbours(cell,side){
const all=cell[side];
if(cell.node){
const steps=all.filter((other)=>other.node);
return steps.length?steps:all}
const back=side==="up"?"down":"up";
return all.filter((other)=>!other.node||!other[back].some((each)=>each.node))}
function align(cells,rows,side,direction,conflicts){
const root=cells.map((_,at)=>at),next=cells.map((_,at)=>at);
for(const row of rows){
let reached=-Infinity;
for(const cell of row){
const near=neighbours(cell,side).slice().sort((a,b)=>(a.place-b.place)*direction);
if(!near.length)continue;
const low=Math.floor((near.length-1)/ 2),high=Math.ceil((near.length-1)/ 2);
for(let at=low;at<=high&&next[cell.id]===cell.id;at++){
const other=near[at],key=side==="up"?other.id+">"+cell.id:cell.id+">"+other.id;
if(conflicts.has(key)||other.place*direction<=reached)continue;
next[other.id]=cell.id;
root[cell.id]=root[other.id];
next[cell.id]=root[cell.id];
reached=other.place*direction}}}
return root}
function compact(cells,rows,root,isLeft,gap,gapLane){
const after=new Map(),before=new Map(),waits=new Map();
for(const row of rows){
for(let at=1;at<row.length;at++){
const a=row[at-1],b=row[at];
const space=(a.node&&b.node?gap:gapLane)+(isLeft?a.right+b.left:a.left+b.right);
const[u,v]=[root[a.id],root[b.id]];
if(u===v)continue;
put(after,u,v,space);
put(before,v,u,space)}}
const roots=cells.map((_,at)=>at).filter((at)=>root[at]===at);
for(const at of roots)waits.set(at,before.has(at)?before.get(at).size:0);
const inOrder=roots.filter((at)=>!waits.get(at)),x=new Array(cells.length).fill(0);
for(let turn=0;turn<inOrder.length;turn++){
for(const[other]of after.get(inOrder[turn])||[]){
waits.set(other,waits.get(other)- 1);
if(!waits.get(other))inOrder.push(other)}}
for(const at of inOrder)x[at]=Math.max(0,...[...(before.get(at)||[])].map(([other,space])=>x[other]+ space));
for(const at of inOrder.slice().reverse()){
const right=Math.min(Infinity,...[...(after.get(at)||[])].map(([other,space])=>x[other]- space));
if(right!==Infinity)x[at]=Math.max(x[at],right)}
return cells.map((_,at)=>x[root[at]])}
function put(map,from,to,space){
if(!map.has(from))map.set(from,new Map());
const there=map.get(from);
there.set(to,Math.max(there.get(to)||0,space))}
function middle(four,cells){
if(!cells.length)return[];
const ends=four.map((x)=>{
let low=Infinity,high=-Infinity;
cells.forEach((cell,at)=>{low=Math.min(low,x[at]- cell.left);high=Math.max(high,x[at]+ cell.right);});
return[low,high]});
const narrow=ends.reduce((best,each,at)=>(each[1]- each[0]<ends[best][1]- ends[best][0]?at:best),0);
const shifted=four.map((x,at)=>{
const shift=at % 2===0?ends[narrow][0]- ends[at][0]:ends[narrow][1]- ends[at][1];
return x.map((each)=>each+shift)});
return cells.map((_,at)=>{
const sorted=shifted.map((x)=>x[at]).sort((a,b)=>a-b);
return(sorted[1]+ sorted[2])/ 2})}
return { coordinates };
})();
const in_layout = (() => {
const{coordinates}=in_columns;
const LOWEST=48;
const GAP_X=26,GAP_LANE=14,GAP_Y=34,MOST_DUMMIES=20000,MOST_CROSSED=1500;
function layout(nodes,edges){
const forward=edges.filter((edge)=>edge.from!==edge.to).concat(inSequence(nodes,edges));
const ranks=rank(nodes,forward);
const level=withLanes(nodes,forward,ranks);
order(level);
const x=coordinates(level,GAP_X,GAP_LANE);
return place(level,x,forward)}
function inSequence(nodes,edges){
const joined=new Set(edges.flatMap((edge)=>[edge.from,edge.to])),found=[];
for(let at=1;at<nodes.length;at++){
const before=nodes[at-1];
if((!joined.has(at)||nodes[at].inTurn)&&!nodes[at].last&&!nodes[at].first&&!before.first)found.push({from:at-1,out:-1,to:at,into:0,isUnseen:true})}
return found}
function rank(nodes,edges){
const before=nodes.map(()=>[]),after=nodes.map(()=>[]);
for(const edge of edges){before[edge.to].push(edge.from);after[edge.from].push(edge.to);}
const ranks=nodes.map(()=>0);
const hasPorts=nodes.some((node)=>node.first);
nodes.forEach((node,at)=>{
if(node.first)return;
let found=hasPorts?1:0;
for(const source of before[at])if(source<at)found=Math.max(found,ranks[source]+ 1);
ranks[at]=found});
for(let at=nodes.length-1;at>=0;at--){
if(nodes[at].first||nodes[at].last||!after[at].length)continue;
const users=new Set(after[at]).size,sources=new Set(before[at]).size;
const latest=Math.min(...after[at].map((to)=>(nodes[to].last?Infinity:ranks[to])))- 1;
if((users>sources||!sources)&&latest!==Infinity&&latest>ranks[at])ranks[at]=latest}
const bottom=Math.max(0,...nodes.map((node,at)=>(node.last?0:ranks[at]+ 1)));
nodes.forEach((node,at)=>{if(node.last)ranks[at]=bottom;});
return ranks}
function withLanes(nodes,edges,ranks){
const count=Math.max(-1,...ranks)+ 1;
const layers=Array.from({length:count},()=>[]);
const cells=nodes.map((node,at)=>({node,at,rank:ranks[at],up:[],down:[],left:node.ax+0,right:Math.max(node.w-node.ax,(node.label||0)+ 10)}));
const chains=new Map();
let dummies=0;
for(const edge of edges){
const span=ranks[edge.to]- ranks[edge.from];
edge.isStub=span<1||dummies+span>MOST_DUMMIES;
if(edge.isStub)continue;
const key=edge.from+":"+edge.out;
if(!chains.has(key))chains.set(key,[]);
const chain=chains.get(key);
let last=cells[edge.from];
for(let rank=ranks[edge.from]+ 1;rank<ranks[edge.to];rank++){
let lane=chain[rank];
if(!lane){
lane=chain[rank]={node:null,at:edge.from,rank,up:[],down:[],left:3,right:3};
cells.push(lane);
join(last,lane);
dummies++}
last=lane}
join(last,cells[edge.to]);
edge.chain=chain.filter((lane)=>lane&&lane.rank<ranks[edge.to])}
for(const cell of cells)layers[cell.rank].push(cell);
return{nodes,cells,layers,ranks}}
function join(upper,lower){
if(!upper.down.includes(lower)){upper.down.push(lower);lower.up.push(upper);}}
function order(level){
const{layers}=level;
for(const layer of layers)layer.sort((a,b)=>Number(!a.node)- Number(!b.node)||a.at-b.at);
number(layers);
const total=layers.reduce((sum,layer)=>sum+layer.length,0);
const sweeps=total>4000?1:total>1000?4:12;
let best=layers.map((layer)=>layer.slice()),fewest=crossings(layers);
for(let sweep=0;sweep<sweeps&&fewest>0;sweep++){
const isDown=sweep % 2===0;
const inTurn=isDown?layers.keys():[...layers.keys()].reverse();
for(const at of inTurn)sortByNeighbours(layers[at],isDown?"up":"down");
if(total<MOST_CROSSED)transpose(layers);
const now=crossings(layers);
if(now<fewest){fewest=now;best=layers.map((layer)=>layer.slice());}}
best.forEach((layer,at)=>{layers[at]=layer;});
number(layers)}
function number(layers){
for(const layer of layers)layer.forEach((cell,at)=>{cell.place=at;})}
function sortByNeighbours(layer,side){
for(const cell of layer){
const places=cell[side].map((other)=>other.place);
cell.wish=places.length?places.reduce((a,b)=>a+b)/ places.length:cell.place}
layer.sort((a,b)=>a.wish-b.wish||a.place-b.place);
layer.forEach((cell,at)=>{cell.place=at;})}
function transpose(layers){
for(const layer of layers){
for(let at=0;at+1<layer.length;at++){
const[a,b]=[layer[at],layer[at+1]];
const now=crossed(a,b,"up")+ crossed(a,b,"down"),swapped=crossed(b,a,"up")+ crossed(b,a,"down");
if(swapped<now){layer[at]=b;layer[at+1]=a;b.place=at;a.place=at+1;}}}}
function crossed(a,b,side){
let found=0;
for(const one of a[side])for(const other of b[side])if(one.place>other.place)found++;
return found}
function crossings(layers){
let found=0;
for(const layer of layers){
const ends=[];
for(const cell of layer)ends.push(...cell.down.map((other)=>other.place).sort((a,b)=>a-b));
found +=inversions(ends)}
return found}
function inversions(numbers){
const size=Math.max(0,...numbers)+ 1,tree=new Array(size+1).fill(0);
let found=0;
numbers.forEach((number,seen)=>{
let smaller=0;
for(let at=number+1;at>0;at -=at&-at)smaller +=tree[at];
found +=seen-smaller;
for(let at=number+1;at<=size;at +=at&-at)tree[at]++});
return found}
function place(level,x,edges){
const{nodes,cells,layers}=level;
const heights=layers.map((layer)=>Math.max(0,...layer.map((cell)=>(cell.node?cell.node.h:0))));
const tops=[];
let y=0;
layers.forEach((layer,at)=>{
tops.push(y);
y +=heights[at]+(at+1<layers.length?gapBelow(layers,heights,at):0)});
const left=Math.min(0,...cells.map((cell,at)=>x[at]- cell.left));
const corner=nodes.map((node,at)=>({x:x[at]- node.ax-left,y:tops[level.ranks[at]]+ Math.min((heights[level.ranks[at]]- node.h)/ 2,LOWEST)}));
cells.forEach((cell,at)=>{cell.x=x[at]- left;});
const geometry={nodes,corner,tops,heights,ranks:level.ranks,layers};
const lines=edges.filter((edge)=>!edge.isUnseen).map((edge)=>route(edge,cells,geometry));
const width=Math.max(0,...cells.map((cell)=>cell.x+cell.right));
return{w:width,h:y,x:corner.map((at)=>at.x),y:corner.map((at)=>at.y),lines}}
function gapBelow(layers,heights,at){
let turns=0;
for(const cell of layers[at])for(const other of cell.down)if(Math.abs(cell.place-other.place)>0)turns++;
const isPort=heights[at]===0||heights[at+1]===0;
return Math.min((isPort?24:GAP_Y)+ turns*1.5,70)}
function route(edge,cells,geometry){
const{nodes,corner,tops,heights,ranks}=geometry;
const source=nodes[edge.from],target=nodes[edge.to],s=ranks[edge.from],t=ranks[edge.to];
const fromX=corner[edge.from].x+(source.outs&&source.outs[edge.out]!==undefined?source.outs[edge.out]:source.ax);
const fromY=corner[edge.from].y+source.h;
const label={x:fromX,y:fromY,turn:0};
if(edge.isStub)return{d:`M${fromX},${fromY}v14`,label,isStub:true};
const verticals=[[fromX,fromY,tops[s]+ heights[s]]];
for(const lane of edge.chain)verticals.push([lane.x,tops[lane.rank],tops[lane.rank]+ heights[lane.rank]]);
const end=entry(edge,verticals,geometry);
const next=verticals.length>1?verticals[1][0]:end.x;
label.turn=Math.abs(next-fromX)<0.5?0:Math.sign(next-fromX);
let d=`M${r(fromX)},${r(fromY)}`,at=[fromX,fromY];
for(const[x,top,bottom]of verticals.slice(1).concat(end.side?[]:[[end.x,tops[t],end.y]])){
d +=curve(at[0],at[1]<tops[s]+ heights[s]?tops[s]+ heights[s]:at[1],x,top,at[1]);
if(bottom>top+0.5)d +=`V${r(bottom)}`;
at=[x,bottom]}
if(end.side){
const corner=end.side*10;
d +=`V${r(end.y - 10)}Q${r(at[0])},${r(end.y)} ${r(at[0] - corner)},${r(end.y)}H${r(end.x)}`}
return{d,label,end:{x:end.x,y:end.y,side:end.side||0}}}
function curve(x0,y0,x1,y1,from){
const straight=from<y0?`V${r(y0)}`:"";
if(Math.abs(x0-x1)<0.5)return straight+`V${r(y1)}`;
const middle=(y0+y1)/ 2;
return `${straight}C${r(x0)},${r(middle)} ${r(x1)},${r(middle)} ${r(x1)},${r(y1)}`}
function entry(edge,verticals,geometry){
const{nodes,corner}=geometry;
const target=nodes[edge.to],at=corner[edge.to],laneX=verticals[verticals.length-1][0];
if(target.ins&&target.ins[edge.into]!==undefined)return{x:at.x+target.ins[edge.into],y:at.y};
const middle={x:at.x+target.ax,y:at.y};
if(!target.flexible)return middle;
const margin=target.w<40?9:12;
if(laneX>=at.x+margin&&laneX<=at.x+target.w-margin)return{x:laneX,y:at.y};
if(edge.chain.length){
const side=laneX>at.x?1:-1,edgeX=side>0?at.x+target.w:at.x;
if(Math.abs(laneX-edgeX)>12&&isFree(edge.to,edgeX,laneX,geometry))return{x:edgeX,y:at.y+target.h / 2,side}}
return middle}
function isFree(node,from,to,geometry){
const low=Math.min(from,to)- 6,high=Math.max(from,to)+ 6;
return geometry.layers[geometry.ranks[node]].every((cell)=>{
if(cell.node&&cell.at===node)return true;
const left=cell.x-cell.left,right=cell.x+(cell.node?cell.node.w-cell.node.ax:cell.right);
return right<low||left>high||(!cell.node&&(cell.x<low+4||cell.x>high-4))})}
function r(number){
return Math.round(number*10)/ 10}
return { layout, r };
})();
const in_data = (() => {
function read(data){
const text=data.text,model={run:data.run,text,tick:data.tick,verdict:data.verdict||null,trail:data.trail||null,diff:null,series:data.series||{}};
model.items=readItems(data.items,text);
model.levels=readLevels(data.levels,text);
model.top=model.items.filter((item)=>item.parent<0);
model.samples=data.samples.map((sample)=>readSample(sample,text));
model.files=data.files.map((file)=>readFile(file,text));
model.events=readEvents(data.events);
model.values=readValues(data.values,text);
readIo(data.events,data.values,model);
index(model);
if(data.diff)model.diff=readDiff(data.diff);
return model}
function readItems(columns,text){
const items=[];
let node=0,next=0,slot=0,nextSlot=0;
columns.parent.forEach((up,at)=>{
const item={number:at,parent:at-up,most:columns.most[at],hasRounds:!!columns.rounds[at],parameters:columns.parameters[at],nodes:[],slots:[],children:[],where:"",numbers:null,total:columns.times[at]};
for(const name of["kind","hue","title","detail","variable","gives","code","often","only"])item[name]=text[columns[name][at]];
for(let count=columns.count[at];count>0;count--){node +=columns.nodes[next++];item.nodes.push(node);}
for(let count=columns.times[at];count>0;count--){slot +=columns.slots[nextSlot++];item.slots.push(slot);}
items.push(item);
if(item.parent>=0)items[item.parent].children.push(item)});
for(const[at,total,steps]of columns.numbers||[]){
let number=0;
items[at].numbers=steps.map((step)=>(number +=step));
items[at].total=total}
return items}
function readLevels(levels,text){
const found=new Map();
for(const[number,flat,outside,ins,outs]of levels){
const level={edges:[],outside:[],ins:ins.map((at)=>text[at]),outs:outs.map((at)=>text[at])};
for(let at=0;at<flat.length;at +=7){
const[from,out,to,into,shape,name,flags]=flat.slice(at,at+7);
level.edges.push({from,out,to,into,shape:text[shape],name:text[name],isBack:(flags&1)>0,isBad:(flags&2)>0})}
for(let at=0;at<outside.length;at +=3){
level.outside.push({word:text[outside[at]],shape:text[outside[at+1]],isUnknown:!!outside[at+2]})}
found.set(number,level)}
return found}
function readSample(sample,text){
const[kind,name,code,detail,args,result,module,at,stack,error,note,thread,roles,results,operands,target,phase,process,root]=sample;
const names=(numbers)=>numbers.map((number)=>text[number]);
return{
kind:text[kind],name:text[name],code:text[code],detail:text[detail],args:text[args],result:text[result],
module:text[module],at:readPlace(at,text),stack:stack.map((each)=>readPlace(each,text)).filter(Boolean),
error:text[error],note:text[note],thread:text[thread],roles:names(roles),results:names(results),
operands:names(operands),target:names(target),phase:text[phase],process,root:text[root],}}
function readPlace(at,text){
if(!at.length)return null;
const[file,line,endLine,col,endCol,name,path]=at;
return{file,line,endLine,col,endCol,function:text[name],path:text[path]}}
function readFile(file,text){
const margins=new Map();
for(let at=0;at<file.lines.length;at +=5){
const[line,times,word,alarm,isBad]=file.lines.slice(at,at+5);
margins.set(line,{times,word:text[word],alarm:text[alarm],isBad:isBad>0})}
return{name:text[file.name],path:text[file.path],pieces:file.pieces.map(([first,number])=>({first,lines:text[number].split("\n")})),margins}}
function readDiff(diff){
const files=diff.files.map((file)=>readFile(file,diff.text_of_files));
const rows=diff.rows.map(([value,event,error,tolerance,agrees,file,line])=>({value,event,error,tolerance,agrees:agrees>0,file,line}));
return{...diff,files,rows}}
function readEvents(columns){
const size=columns.sample.length,start=new Float64Array(size),parent=new Int32Array(size);
let clock=0;
for(let at=0;at<size;at++){
clock +=columns.start[at];
start[at]=clock;
parent[at]=columns.up[at]?at-columns.up[at]:-1}
const within=new Map(),half=columns.within.length / 2;
for(let at=0,event=0,anchor=0;at<half;at++)within.set((event +=columns.within[at]),(anchor +=columns.within[half+at]));
return{size,sample:columns.sample,parent,start,spent:columns.spent,takes:[],gives:[],within}}
function readValues(columns,text){
const maker=[];
let last=0;
for(const step of columns.maker){last +=step;maker.push(last);}
return{word:columns.word.map((at)=>text[at]),maker,parameters:new Set(columns.parameter),stats:readStats(columns.stats),sizes:columns.sizes,device:columns.device&&columns.device.length?columns.device.map((at)=>text[at]):null}}
function readStats(packed){
if(!packed.columns)return packed;
const{names,columns,at,row,rest}=packed;
const rows=(columns[0]||[]).map((_,number)=>{
const known={};
names.forEach((name,column)=>{
const value=columns[column][number];
if(value!==null)known[name]=value});
return known});
const found={};
let place=0;
let number=0;
at.forEach((step,each)=>{
place +=step;
number +=row[each];
found[place]=rest[place]?{...rows[number],...rest[place]}:rows[number]});
return found}
function readIo(events,values,model){
let at=0,known=0;
const next=()=>{const back=events.io[at++];return back?known-back:known++;};
for(let event=0;event<model.events.size;event++){
model.events.takes.push(Array.from({length:events.takes[event]},next));
model.events.gives.push(Array.from({length:events.gives[event]},next))}
model.sources=new Map();
for(let each=0;each<values.through.length;each +=3){
const[event,argument,value]=values.through.slice(each,each+3);
model.sources.set(event+":"+argument,value)}}
function index(model){
model.itemOf=new Map();
for(const item of model.items)for(const node of item.nodes)model.itemOf.set(node,item);
model.firstOf=[];
for(let event=model.events.size-1;event>=0;event--)model.firstOf[model.events.sample[event]]=event;
model.readers=new Map();
for(let event=0;event<model.events.size;event++){
model.events.takes[event].forEach((value,at)=>{
const source=sourceValue(model,event,at);
if(!model.readers.has(source))model.readers.set(source,[]);
model.readers.get(source).push(event)})}
model.byLine=new Map();
for(const event of model.itemOf.keys()){
const at=sampleOf(model,event).at;
if(!at||at.file<0)continue;
const key=at.file+":"+at.line;
if(!model.byLine.has(key))model.byLine.set(key,[]);
model.byLine.get(key).push(event)}
for(const events of model.byLine.values())events.sort((a,b)=>a-b);
model.failing=failingItems(model);
nameGroups(model)}
function nameGroups(model){
for(const item of[...model.items].reverse()){
if(item.kind!=="repeat"||item.title)continue;
const[first,last]=[item.children[0],item.children[item.children.length-1]].map((child)=>(child?child.title||child.code:""));
item.title=first&&last&&first!==last?`${first} … ${last}`:first||"steps"}
const firstIn=(item)=>(item.nodes.length?item.nodes[0]:item.children.length?firstIn(item.children[0]):-1);
const samples=model.top.map((item)=>(firstIn(item)>=0?sampleOf(model,firstIn(item)):null));
const processes=new Set(samples.map((sample)=>sample&&sample.process)).size;
const several=processes>1;
const threads=new Set(samples.map((sample)=>sample&&sample.process+" "+sample.thread));
model.top.forEach((item,at)=>{
const sample=samples[at];
if(sample&&threads.size>1)item.where=threads.size>processes?threadWord(sample.process,sample.thread,several):processWord(sample)})}
function threadWord(process,name,several){
if(!several|| /\b(process|rank) \d/.test(name))return name;
return `process ${process} · ${name}`}
function processWord({process,thread}){
return /\brank \d/.test(thread)?thread:`process ${process}`}
function sampleOf(model,event){
return model.samples[model.events.sample[event]]}
function sourceValue(model,event,argument){
const through=model.sources.get(event+":"+argument);
return through===undefined?model.events.takes[event][argument]:through}
function itemWith(model,event){
const shown=shownEvent(model,event);
return shown>=0?model.itemOf.get(shown):null}
function shownEvent(model,event){
const{within,parent}=model.events;
while(event>=0&&!model.itemOf.has(event))event=within.has(event)?within.get(event):parent[event];
return event}
function seenFrom(model,event,other){
const around=new Set();
for(let at=other;at>=0;at=model.events.parent[at])around.add(at);
let found=shownEvent(model,event);
for(let at=found;at>=0&&!around.has(at);at=model.events.parent[at])if(model.itemOf.has(at))found=at;
return found}
function timesIn(item,slot){
const first=lowest(item.slots,slot);
return[first,lowest(item.slots,slot+1)]}
function roundWord(item,at,slot){
const[first,last]=timesIn(item,slot);
const number=item.numbers?item.numbers[at]:at-first+1;
return `${number.toLocaleString("en")} of ${(item.numbers ? item.total : last - first).toLocaleString("en")}`}
function lowest(sorted,number){
let low=0,high=sorted.length;
while(low<high){const middle=(low+high)>>1;if(sorted[middle]<number)low=middle+1;else high=middle;}
return low}
function failingItems(model){
const found=new Set();
let item=model.run.failed>=0?itemWith(model,model.run.failed):null;
while(item){found.add(item.number);item=model.items[item.parent];}
return found}
function opened(model,most=26,depth=null){
const open=new Set();
if(depth!==null){
const walk=(items,level)=>items.forEach((item)=>{
if(item.children.length&&level<depth){open.add(item.number);walk(item.children,level+1);}});
walk(model.top,0);
return open}
for(const number of model.failing)if(model.items[number].children.length)open.add(number);
const sizes=new Map(),size=(item)=>{
if(!sizes.has(item.number))sizes.set(item.number,item.nodes.length+item.children.reduce((sum,child)=>sum+size(child),0));
return sizes.get(item.number)};
const boxes=()=>{let count=0;const walk=(items)=>items.forEach((item)=>{count++;if(open.has(item.number))walk(item.children);});walk(model.top);return count;};
const closed=(items)=>items.flatMap((item)=>(open.has(item.number)?closed(item.children):item.children.length?[item]:[]));
for(let turn=0;turn<100;turn++){
const now=boxes();
const fits=closed(model.top).filter((item)=>item.kind!=="library"&&item.children.length<=120&&(now+item.children.length<=most||!open.size));
if(!fits.length)break;
open.add(fits.reduce((best,item)=>(size(item)>size(best)?item:best)).number)}
return open}
return { read, threadWord, sampleOf, sourceValue, itemWith, shownEvent, seenFrom, timesIn, roundWord, opened };
})();
const in_graph = (() => {
const{layout,r}=in_layout;
const{width}=in_letters;
const PAD=18,HEAD=34,RAIL=12,MOST_PORTS=8;
const LONGEST_TITLE=40,LONGEST_DETAIL=38,LONGEST_WORD=30;
const ALARM= / ?[\d,]+ (NaN|[+−]Inf).*$/;
function scene(model,view){
const top=group(model,null,view);
const marks=[];
draw(top,0,0,marks,0);
return{w:top.w,h:top.h,marks,boxes:top.boxes}}
function group(model,item,view){
const level=model.levels.get(item?item.number:-1);
let children=item?item.children:model.top;
if(!item&&view.shows)children=children.filter(view.shows);
const parts=[],placeOf=new Map();
if(item)portNames(level.ins).forEach((name,at)=>parts.push({kind:"in",name,port:at,w:0,h:0,ax:0,first:true,label:name?Math.min(width(name,11,true),120):0}));
const isOpen=(child)=>view.open.has(child.number)&&child.children.length>0;
const carried=item&&item.hasRounds?carriedIn(level.edges,(number)=>isOpen(item.children[number])):[];
for(const{key,name}of carried){placeOf.set("i"+key,parts.length);parts.push({kind:"carriedIn",name,w:0,h:0,ax:0,first:true,label:Math.min(width("↻ "+name,11,true),130)});}
const used=new Map();
level.edges.forEach((edge)=>{if(edge.from<-1&&edge.to>=0)used.set(edge.from,Math.min(used.has(edge.from)?used.get(edge.from):Infinity,edge.to));});
const outsideBefore=(number)=>level.outside.forEach((each,at)=>{
if(used.get(-2-at)!==number||placeOf.has("o"+at))return;
placeOf.set("o"+at,parts.length);
parts.push(outsideBox(each,item))});
const all=item?item.children:model.top;
all.forEach((child,number)=>{
if(!children.includes(child))return;
outsideBefore(number);
placeOf.set(number,parts.length);
parts.push(isOpen(child)?group(model,child,view):box(child,view))});
const lastAt=parts.length;
if(item)portNames(level.outs).forEach((name,at)=>parts.push({kind:"out",name,port:at,w:0,h:0,ax:0,last:true}));
for(const{key}of carried){placeOf.set("c"+key,parts.length);parts.push({kind:"carriedOut",w:0,h:0,ax:0,last:true});}
const edges=[],backs=[],drawnOnce=new Set();
for(const edge of level.edges){
if(edge.isBack){back(edge,carried,placeOf,parts,edges,backs,drawnOnce);continue;}
const from=edge.from>=0?placeOf.get(edge.from):edge.from===-1?Math.min(edge.out,MOST_PORTS):placeOf.get("o"+(-2-edge.from));
const to=edge.to>=0?placeOf.get(edge.to):lastAt+Math.min(edge.into,MOST_PORTS);
if(from===undefined||to===undefined||from===to||!parts[from]||!parts[to]||(!item&&(edge.from===-1||edge.to===-1)))continue;
const out=Math.min(edge.out,MOST_PORTS),into=Math.min(edge.into,MOST_PORTS);
const key=`${from}:${parts[from].outs ? out : ""}>${to}:${parts[to].ins ? into : ""}`;
if(drawnOnce.has(key))continue;
drawnOnce.add(key);
edges.push({from,out,to,into,shape:edge.shape,name:edge.name,isBad:edge.isBad})}
for(const edge of edges){
const part=parts[edge.from],word=cut(edge.name||edge.shape,LONGEST_WORD);
if(word&&part.kind==="box")part.label=Math.max(part.label||0,width(word,11,true))}
for(const{from,to}of backs)if(from===to)parts[from].label=Math.max(parts[from].label||0,parts[from].w-parts[from].ax+12);
const found=layout(parts,edges);
return framed(model,item,parts,edges,found,backs)}
function carriedIn(edges,isOpen){
const found=new Map();
for(const edge of edges){
if(!edge.isBack||(edge.from===edge.to&&!isOpen(edge.from)))continue;
const key=isOpen(edge.from)?edge.from+":"+edge.out:String(edge.from);
if(!found.has(key)&&found.size===MOST_PORTS)continue;
if(!found.has(key))found.set(key,{key,name:edge.name,edges:new Set()});
found.get(key).edges.add(edge)}
return[...found.values()]}
function back(edge,carried,placeOf,parts,edges,backs,drawnOnce){
const way=carried.find((each)=>each.edges.has(edge)),from=placeOf.get(edge.from),to=placeOf.get(edge.to),into=way&&placeOf.get("i"+way.key);
if(from===undefined||to===undefined)return;
const once=(key,action)=>{if(!drawnOnce.has(key)){drawnOnce.add(key);action();}};
const ends={isCarried:true,of:parts[from].item.number,takenBy:parts[to].item.number,shape:"",name:""};
if(into===undefined)once(`b${from}>${to}`,()=>backs.push({from,to,...ends}));
else{
once("c"+way.key,()=>edges.push({from,out:edge.out,to:placeOf.get("c"+way.key),into:0,...ends}));
once(`c${into}>${to}:${parts[to].ins ? edge.into : ""}`,()=>edges.push({from:into,out:0,to,into:edge.into,...ends}))}}
function portNames(names){
return names.length>MOST_PORTS+1?[...names.slice(0,MOST_PORTS),`+${names.length - MOST_PORTS} more`]:names}
function framed(model,item,parts,edges,found,backs){
const boxes=parts.reduce((sum,part)=>sum+(part.boxes||(part.item?1:0)),item?1:0);
if(!item)return{kind:"top",parts,edges,backs,found,w:found.w,h:found.h,dx:0,dy:0,boxes};
const title=titleWidth(item)+ 60,isCarrying=parts.some((part)=>part.kind==="carriedOut"),w=Math.max(found.w+2*PAD,title),dx=(w-found.w)/ 2,dy=HEAD;
const h=found.h+HEAD+(isCarrying?RAIL:parts.some((part)=>part.kind==="out")?0:PAD);
const ports=(kind)=>parts.map((part,at)=>(part.kind===kind?found.x[at]+ dx:null)).filter((x)=>x!==null);
const ins=ports("in"),outs=ports("out");
return{kind:"group",item,parts,edges,backs,found,w,h,dx,dy,ax:ins.length?ins[0]:outs.length?outs[0]:w / 2,ins,outs,boxes,state:stateOf(model,item)}}
function titleWidth(item){
const words=[[titleOf(item),13,true],[detailOf(item),12],[item.often,13,true],[onlyOf(item),12]];
return words.reduce((sum,[word,size,isBold])=>sum+(word?width(word,size,false,isBold)+ 8:0),30)}
function titleOf(item){
return cut(item.title||"repeat",item.hasRounds?60:LONGEST_TITLE)}
function detailOf(item){
const detail=item.kind==="repeat"&&item.children.length?"":item.detail;
return cut([item.where,detail].filter(Boolean).join("  "),LONGEST_DETAIL)}
function onlyOf(item){
return cut(item.only,LONGEST_DETAIL)}
function stateOf(model,item){
return model.failing.has(item.number)?"failed":""}
function box(item,view){
const part={kind:"box",item,flexible:true,inTurn:item.kind==="step",boxes:1,state:view.model.failing.has(item.number)?"failed":""};
const{often}=item;
if(item.kind==="sign"&&!often&&!item.only)return{...part,shape:"sign",w:26,h:26,ax:13};
if(item.kind==="function"||item.kind==="view"||item.kind==="sign"||item.kind==="mark"){
const name=cut(item.title,34),variable=[cut(item.variable,22),onlyOf(item)].filter(Boolean).join("  ");
const w=width(name,12,true)+(variable?width(variable,12,true)+ 7:0)+(often?width(often,12)+ 8:0)+ 24+(item.children.length?16:0);
return{...part,shape:"pill",name,variable,often,w,h:26,ax:w / 2}}
const name=titleOf(item),detail=[cut([item.where,item.detail].filter(Boolean).join("  "),LONGEST_DETAIL),onlyOf(item)].filter(Boolean).join("  ");
const first=width(name,13,false,true)+(often?width(often,13,false,true)+ 16:0),second=width(detail,12);
const w=Math.max(first,second)+ 28+(item.children.length?18:0);
return{...part,shape:"card",name,detail,often,w,h:detail?44:30,ax:w / 2}}
function outsideBox(outside,around){
const name=cut(outside.word,30),w=width(name,12,true)+ 22;
return{kind:"outside",name,isUnknown:outside.isUnknown,shapeWord:outside.shape,w,h:24,ax:w / 2,flexible:true,label:outside.shape?width(outside.shape,11,true):0,around}}
function cut(text,most){
return[...text].length>most?[...text].slice(0,most-1).join("")+ "…":text}
function draw(part,x,y,marks,depth){
const{parts,edges,found,dx,dy}=part,left=x+dx,top=y+dy;
if(depth)frame(part,x,y,marks,depth % 2?"odd":"even");
edges.forEach((edge,at)=>line(edge,found.lines[at],parts,left,top,marks,part.item));
words(edges,found.lines,parts,left,top,marks);
parts.forEach((child,at)=>{
const cx=left+found.x[at],cy=top+found.y[at];
if(child.kind==="group")draw(child,cx,cy,marks,depth+1);
else if(child.kind==="box")card(child,cx,cy,marks);
else if(child.kind==="outside")outside(child,cx,cy,marks);
else if(child.kind==="in"||child.kind==="out")port(child,cx,cy,part,x,y,marks);
else if(child.kind==="carriedIn")marks.push({t:"text",x:cx+6,y:cy+11,s:cut("↻ "+child.name,20),c:"port"})});
rail(part,x,y,marks);
for(const edge of part.backs)marks.push({t:"path",d:leadingBack(edge,part,left,top),c:"edge carried",from:edge.of,to:edge.takenBy,arrow:true})}
function rail(part,x,y,marks){
const{parts,found,dx,dy}=part,at=(kind)=>parts.map((child,number)=>(child.kind===kind?x+dx+found.x[number]:null)).filter((each)=>each!==null);
const outs=at("carriedOut"),ins=at("carriedIn");
if(!outs.length)return;
const right=x+part.w-8,top=y+dy-4,bottom=y+dy+found.h,first=Math.min(...outs),last=Math.min(...ins);
marks.push({t:"path",d:`M${r(first)},${r(bottom)}H${r(right - 8)}Q${r(right)},${r(bottom)} ${r(right)},${r(bottom - 8)}V${r(top + 8)}Q${r(right)},${r(top)} ${r(right - 8)},${r(top)}H${r(last)}`,c:"edge carried",from:part.item.number,to:part.item.number});
for(const each of ins)marks.push({t:"path",d:`M${r(each)},${r(top)}V${r(y + dy)}`,c:"edge carried",from:part.item.number,to:part.item.number})}
function leadingBack({from,to},{parts,found},left,top){
const source=parts[from],target=parts[to],x0=left+found.x[from],y0=top+found.y[from],x1=left+found.x[to],y1=top+found.y[to];
if(from!==to)return `M${r(x0 + source.ax)},${r(y0 + source.h)}C${r(x0 + source.w + 40)},${r(y0 + source.h + 30)} ${r(x1 + target.w + 40)},${r(y1 - 30)} ${r(x1 + target.ax)},${r(y1)}`;
const right=x0+source.w+(source.item.most>1?5:0),low=y0+source.h-6,high=y0+7,middle=Math.min(10,(low-high)/ 2);
return `M${r(right)},${r(low)}Q${r(right + 10)},${r(low)} ${r(right + 10)},${r(low - middle)}V${r(high + middle)}Q${r(right + 10)},${r(high)} ${r(right)},${r(high)}`}
function frame(part,x,y,marks,parity){
const{item,w,h,state}=part,number=item.number,own=marks.length;
if(item.most>1)for(const back of[6,3])marks.push({t:"rect",x:x+back,y:y+back,w,h,r:10,c:"group back"});
marks.push({t:"rect",x,y,w,h,r:10,c:`group ${parity} ${state}`,item:number});
marks.push({t:"rect",x:x+4,y:y+4,w:Math.min(w-8,titleWidth(item)+ 16),h:24,r:6,c:"head",item:number,toggle:number});
marks.push({t:"path",d:`M${r(x + 13)},${r(y + 14)}l4.5,4.5l4.5,-4.5`,c:"chevron"});
const{often}=item,name=titleOf(item),detail=detailOf(item),only=onlyOf(item);
marks.push({t:"text",x:x+30,y:y+20.5,s:name,c:"title "+state});
let at=x+30+width(name,13,false,true)+ 8;
if(detail){marks.push({t:"text",x:at,y:y+20.5,s:detail,c:"detail"});at +=width(detail,12)+ 8;}
if(often){marks.push({t:"text",x:at,y:y+20.5,s:often,c:"often"});at +=width(often,13,false,true)+ 8;}
if(only)marks.push({t:"text",x:at,y:y+20.5,s:only,c:"detail"});
for(let each=own;each<marks.length;each++)marks[each].of=number}
function card(part,x,y,marks){
const{item,w,h,shape,name,detail,often,variable,state}=part,number=item.number,middle=x+w / 2;
const own=marks.length,classes=`box ${shape} ${item.kind} ${state}`;
if(shape==="sign"){
marks.push({t:"circle",x:middle,y:y+h / 2,r:12.5,c:classes,item:number});
marks.push({t:"text",x:middle,y:y+h / 2+4.5,s:name||item.title,c:"sign",anchor:"middle",of:number});
return}
if(item.most>1)for(const back of[5,2.5])marks.push({t:"rect",x:x+back,y:y+back,w,h,r:shape==="pill"?13:7,c:"box back"});
marks.push({t:"rect",x,y,w,h,r:shape==="pill"?13:7,c:classes,item:number});
if(shape==="pill"){
let at=x+12;
marks.push({t:"text",x:at,y:y+17,s:name,c:"name "+item.kind+" "+state});
at +=width(name,12,true)+ 7;
if(variable){marks.push({t:"text",x:at,y:y+17,s:variable,c:"variable"});at +=width(variable,12,true)+ 8;}
if(often)marks.push({t:"text",x:at,y:y+17,s:often,c:"often"})}else{
if(item.hue)marks.push({t:"rect",x:x+5,y:y+8,w:3,h:h-16,r:1.5,c:"hue "+item.hue});
marks.push({t:"text",x:x+15,y:y+(detail?18.5:19.5),s:name,c:"title "+state});
if(often)marks.push({t:"text",x:x+15+width(name,13,false,true)+ 10,y:y+(detail?18.5:19.5),s:often,c:"often"});
if(detail)marks.push({t:"text",x:x+15,y:y+34.5,s:detail,c:"detail"})}
if(item.children.length){
marks.push({t:"path",d:`M${r(x + w - 17)},${r(y + h / 2 - 5)}l4.5,5l-4.5,5`,c:"chevron"});
marks.push({t:"rect",x:x+w-26,y,w:26,h,r:7,c:"head",item:number,toggle:number})}
if(state&&!item.children.length)marks.push({t:"text",x:x+w+8,y:y+h / 2+5,s:"✗",c:"cross"});
for(let at=own;at<marks.length;at++)marks[at].of=number}
function outside(part,x,y,marks){
marks.push({t:"rect",x,y,w:part.w,h:part.h,r:12,c:"outside"+(part.isUnknown?" unknown":"")});
marks.push({t:"text",x:x+part.w / 2,y:y+16,s:part.name,c:"name view",anchor:"middle"})}
function port(child,cx,cy,part,x,y,marks){
if(child.kind==="in"){
const isUnderTitle=cx<x+24+titleWidth(part.item)&&cx>x+6;
marks.push({t:"path",d:`M${r(cx)},${r(isUnderTitle ? y + HEAD - 6 : y)}V${r(cy)}`,c:"edge",from:part.item.number,to:part.item.number});
if(child.name)marks.push({t:"text",x:cx+7,y:cy+4,s:cut(child.name,18),c:"port"});
marks.push({t:"circle",x:cx,y,r:3,c:"dot"})}else{
if(cy<y+part.h)marks.push({t:"path",d:`M${r(cx)},${r(cy)}V${r(y + part.h)}`,c:"edge",from:part.item.number,to:part.item.number});
marks.push({t:"circle",x:cx,y:y+part.h,r:3,c:"dot"})}}
function line(edge,route,parts,dx,dy,marks,around){
const from=parts[edge.from],to=parts[edge.to];
const item=(part)=>(part.item?part.item.number:around?around.number:-1);
const d=moved(route.d,dx,dy),isPort=to.kind==="out"||to.kind==="carriedOut",isOutside=from.kind==="outside";
if(edge.isCarried){marks.push({t:"path",d,c:"edge carried",from:edge.of,to:edge.takenBy,arrow:!isPort});return;}
const c="edge"+(route.isStub?" stub":"")+(isOutside?" quiet":"");
const ends={from:isOutside?-2:item(from),to:item(to),out:edge.out,into:edge.into,isBad:edge.isBad};
marks.push({t:"path",d,c:"edge hit",...ends,isBad:false,edge:marks.length});
marks.push({t:"path",d,c,...ends,arrow:!isPort&&!route.isStub})}
function words(edges,lines,parts,dx,dy,marks){
const results=new Map();
edges.forEach((edge,at)=>{
if(edge.isCarried)return;
const key=parts[edge.from].outs?edge.from+":"+edge.out:edge.from;
if(!results.has(key))results.set(key,{edge,label:lines[at].label,turns:new Set(),all:new Set()});
results.get(key).turns.add(lines[at].label.turn);
results.get(key).all.add(edge.name||edge.shape)});
for(const{edge,label,turns,all}of results.values()){
const from=parts[edge.from],word=from.kind==="outside"?from.shapeWord:all.size===1?[...all][0]:"";
if(!word||from.kind==="in"||(turns.has(1)&&turns.has(-1))||isSaidInside(from,edge.out))continue;
const isLeft=turns.has(1),x=dx+label.x+(isLeft?-6:6);
const alarm=word.match(ALARM),isName=edge.name&&from.kind!=="outside";
const mark={t:"text",x,y:dy+label.y+13,s:cut(word,LONGEST_WORD),c:(isName?"port":"shape")+(edge.isBad&&alarm?" bad":""),anchor:isLeft?"end":undefined};
if(alarm&&from.item)Object.assign(mark,{plain:cut(word.slice(0,alarm.index),LONGEST_WORD),giver:from.item.number,out:edge.out,isBad:edge.isBad});
marks.push(mark)}}
function isSaidInside(part,out){
return part.kind==="group"&&part.edges.some((edge)=>part.parts[edge.to].kind==="out"&&part.parts[edge.to].port===out&&edge.shape)}
function moved(d,dx,dy){
return d.replace(/([MLCQVHvl])([^MLCQVHvl]*)/g,(_,letter,rest)=>{
if(letter==="v"||letter==="l")return letter+rest;
const numbers=rest.trim().split(/[\s,]+/).map(Number);
const shifted=numbers.map((number,at)=>r(number+(letter==="V"?dy:letter==="H"?dx:at % 2?dy:dx)));
return letter+shifted.join(",")})}
return { scene, cut };
})();
const in_picture = (() => {
const{opened,read}=in_data;
const{scene}=in_graph;
const{r}=in_layout;
const{width}=in_letters;
const STYLE=`text{font-family:Inter,"Helvetica Neue",Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1b2430;font-size:13px}
.title,.often{font-weight:600}.detail{font-size:12px;fill:#66717f}.often{fill:#3366e0}
.name,.variable,.port,.shape,.sign{font-family:"JetBrains Mono","DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:12px}
.port,.shape{font-size:11px}.variable,.name.view{fill:#7b8594}.port{fill:#8a94a3}.shape{fill:#0f766e}.bad{fill:#b91c1c}.sign{font-size:14px}
.group{fill:#f6f8fa;stroke:#cdd4de}.group.even{fill:#fcfdfe}.group.back{fill:#fff}.box{fill:#fff;stroke:#c3cad5}.box.view{stroke:#e3e7ed}.outside{fill:#f4f6f9;stroke:#aab4c2;stroke-dasharray:3 3}
.edge{fill:none;stroke:#98a2b1;stroke-width:1.2}.edge.quiet{stroke:#b9c1cc}.edge.carried{stroke-dasharray:5 3}.dot{fill:#fff;stroke:#98a2b1}.head{fill:none}.chevron{fill:none;stroke:#8a94a3;stroke-width:1.4}
.box.failed,.group.failed{stroke:#dc2626}.box.failed{fill:#fef2f2}.title.failed,.name.failed,.cross{fill:#c01f1f}
.hue{stroke:none;fill:#9aa4b2}.weights{fill:#3f6fe8}.norm{fill:#2f9488}.activation{fill:#d9694f}.attention{fill:#7c5fd0}.pool{fill:#75829b}.dropout{fill:#b9a0a4}.loss,.train{fill:#c26484}`;
function picture(json,depth,most){
const model=read(JSON.parse(json));
const open=opened(model,most||26,depth<0?null:depth);
return svg(scene(model,{model,open}))}
function svg(drawn){
const w=Math.ceil(drawn.w+40),h=Math.ceil(drawn.h+40);
const marks=drawn.marks.filter((mark)=>mark.toggle===undefined&&mark.edge===undefined).map(element).join("\n");
const arrow='<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M1,1L7,4L1,7" fill="none" stroke="#98a2b1" stroke-width="1.3"/></marker>';
return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-20 -20 ${w} ${h}" width="${w}" height="${h}"><style>${escapeText(STYLE)}</style><defs>${arrow}</defs><rect x="-20" y="-20" width="${w}" height="${h}" fill="#fff"/>\n${marks}\n</svg>\n`}
function element(mark){
const c=` class="${mark.c.trim()}"`;
if(mark.t==="rect")return `<rect x="${r(mark.x)}" y="${r(mark.y)}" width="${r(mark.w)}" height="${r(mark.h)}" rx="${mark.r}"${c}/>`;
if(mark.t==="circle")return `<circle cx="${r(mark.x)}" cy="${r(mark.y)}" r="${mark.r}"${c}/>`;
if(mark.t==="path")return `<path d="${mark.d}"${c}${mark.arrow ? ' marker-end="url(#arrow)"' : ""}/>`;
const anchor=mark.anchor?` text-anchor="${mark.anchor}"`:"";
return `<text x="${r(mark.x)}" y="${r(mark.y)}"${anchor}${c}${fitted(mark)}>${escapeText(mark.s)}</text>`}
const TYPES={title:[13,true],often:[13,true],detail:[12,false]};
function fitted(mark){
const type=TYPES[mark.c.trim().split(" ")[0]];
return type?` textLength="${r(width(mark.s, type[0], false, type[1]))}" lengthAdjust="spacingAndGlyphs"`:""}
function escapeText(text){
return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g,"\ufffd").replace(/[&<>"']/g,(letter)=>`&#${letter.codePointAt(0)};`)}
return { picture, svg, escapeText };
})();

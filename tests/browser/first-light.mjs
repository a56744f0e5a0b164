// First light: a sample app, opened as the home page will open it, keeps what a person enters.
//
// A parent page on an origin of its own holds the app in <iframe sandbox="allow-scripts">. In that frame the test makes
// one entry through the app's own controls, sees it, finds its line in the collection's file and sees it again after a
// reload, and in the page opened by itself with the link that the gateway prints. On the way it makes sure that the frame really is shut in, that nothing was logged as an error, that no request
// left for another host, and that the page fits a phone.
//
// The gateway is not started here: it is running already, and the environment says where.
//   LINEKEEP_URL    http://127.0.0.1:8765
//   LINEKEEP_SLUG   shopping | diary | plants
//   LINEKEEP_TOKEN  the app's token
//   LINEKEEP_DATA   path of the collection's file (items.jsonl, notes.jsonl, plants.jsonl)
//   CHROMIUM        the browser, /usr/bin/chromium if not given
//   LINEKEEP_SHOT   a folder for screenshots, none if not given
// Prints `ok <slug>` and exits 0, or says what failed and exits 1, within a minute either way.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const DEADLINE_MS = 60_000;
const STEP_MS = 10_000;
const CLOSE_MS = 5_000;
const PHONE = { width: 360, height: 740 };
const DESKTOP = { width: 1200, height: 800 };
const TOUCH_PX = 44;

// How a person makes an entry, where it then shows, and the field it becomes.
const APPS = {
  shopping: {
    field: 'what',
    shown: '#todo li',
    async enter(frame, text) {
      await frame.fill('#what', text);
      await frame.press('#what', 'Enter');
    },
  },
  diary: {
    field: 'text',
    shown: '#timeline li',
    async enter(frame, text) {
      await frame.fill('#text', text);
      await frame.click('#save');
    },
  },
  plants: {
    field: 'name',
    shown: '#cards li',
    async enter(frame, text) {
      await frame.click('#add');
      await frame.fill('#plant-name', text);
      await frame.click('#plant-save');
    },
  },
};

function setting(name, fallback) {
  const value = process.env[name] || fallback;
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

// The page around the frame, on an origin that is not the gateway's.
async function serveParent(frameUrl) {
  const server = createServer((request, response) => {
    const theme = new URL(request.url, 'http://parent').searchParams.get('theme');
    if (!theme) {
      response.writeHead(204).end();
      return;
    }
    const source = frameUrl(theme).replaceAll('&', '&amp;').replaceAll('"', '&quot;');
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(`<!doctype html>
<html lang="en"><title>parent</title>
<style>body { margin: 0 } iframe { display: block; width: 100%; height: 100dvh; border: 0 }</style>
<iframe title="app" sandbox="allow-scripts" src="${source}"></iframe>`);
  });
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}

async function openApp(page, parent, theme, size) {
  await page.setViewportSize(size);
  await page.goto(`${parent.origin}/?theme=${theme}`, { waitUntil: 'load' });
  const frame = page.frames().find(each => each.parentFrame() === page.mainFrame());
  assert.ok(frame, 'the parent page holds no frame');
  await frame.waitForLoadState('load');
  return frame;
}

// textContent, not Playwright's text selectors: those fold white space, and U+2028 is white space.
async function waitUntilShown(frame, selector, text) {
  await frame.waitForFunction(
    ([selector, text]) => [...document.querySelectorAll(selector)]
      .some(node => node.textContent.includes(text) && node.checkVisibility()),
    [selector, text],
  );
}

async function assertShutIn(frame, which = 'the frame') {
  const attempt = reach => frame.evaluate(`(() => { try { ${reach}; return 'allowed'; } catch (error) { return error.name; } })()`);
  if (frame.parentFrame()) assert.equal(await attempt('parent.document.title'), 'SecurityError', `${which} reads its parent document`);
  assert.equal(await attempt('localStorage.length'), 'SecurityError', `${which} has a localStorage`);
  assert.equal(await attempt('document.cookie'), 'SecurityError', `${which} has cookies`);
  assert.equal(await frame.evaluate('self.origin'), 'null', `${which} has an origin`);
}

async function assertFitsPhone(frame) {
  const { wide, small } = await frame.evaluate(touchPx => ({
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    // A tick box is as large as the label around it. Layout sizes, so that a movement under way does not count.
    small: [...document.querySelectorAll('button, input, select, textarea')]
      .filter(node => node.checkVisibility())
      .map(node => ({ node, height: (node.type === 'checkbox' && node.closest('label') || node).offsetHeight }))
      .filter(({ height }) => height < touchPx)
      .map(({ node, height }) => `${node.localName}#${node.id} ${node.getAttribute('aria-label') ?? ''}: ${height} px high`),
  }), TOUCH_PX);
  assert.equal(wide, 0, `the page is ${wide} px too wide for a phone`);
  assert.deepEqual(small, [], 'controls too small for a thumb');
}

async function assertKept(path, field, text) {
  const file = await readFile(path, 'utf8');
  assert.ok(file.endsWith('\n'), 'the last line of the file is not ended');
  const kept = file.split('\n')
    .filter(line => line.includes('🌱'))
    .map(line => JSON.parse(line))
    .filter(record => record[field] === text);
  assert.equal(kept.length, 1, `lines with the entry in ${path}`);
  assert.match(kept[0].id, /^[0-9a-f]{12}$/);
  assert.match(kept[0].ts, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$/);
}

// Opens the app, enters, looks, and takes its pictures. Throws what went wrong.
async function firstLight(browser, parent, { slug, gateway, link, data, shots }) {
  const app = APPS[slug];
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(STEP_MS);

  const complaints = [];
  const known = new Set([gateway.origin, parent.origin]);
  page.on('console', message => {
    if (message.type() === 'error') complaints.push(`console: ${message.text()}`);
  });
  page.on('pageerror', error => complaints.push(`page error: ${error.message}`));
  page.on('request', request => {
    const url = new URL(request.url());
    if (!known.has(url.origin)) complaints.push(`request to another host: ${url.origin}`);
  });
  // Paths are shown without what opens them.
  const place = request => new URL(request.url()).pathname.replace(/~[^/]+/, '~…');
  page.on('requestfailed', request => {
    const why = request.failure()?.errorText;
    if (why !== 'net::ERR_ABORTED') complaints.push(`${place(request)}: ${why}`);   // aborted: the page went elsewhere
  });
  page.on('response', response => {
    if (response.status() >= 400) complaints.push(`${place(response.request())}: HTTP ${response.status()}`);
  });

  try {
    const text = `emoji 🌱 "quote" U+2028\u2028 <img src=x onerror=alert(1)> ${randomBytes(4).toString('hex')}`;
    let frame = await openApp(page, parent, 'light', PHONE);
    await assertShutIn(frame);
    await app.enter(frame, text);
    await waitUntilShown(frame, app.shown, text);
    await assertKept(data, app.field, text);
    await assertFitsPhone(frame);

    frame = await openApp(page, parent, 'dark', PHONE);
    await waitUntilShown(frame, app.shown, text);

    // The link that the gateway prints, opened by itself: shut in as well, and at work.
    await page.goto(link, { waitUntil: 'load' });
    await assertShutIn(page.mainFrame(), 'the page opened by itself');
    await waitUntilShown(page.mainFrame(), app.shown, text);

    if (shots) {
      await mkdir(shots, { recursive: true });
      for (const theme of ['light', 'dark']) {
        for (const size of [PHONE, DESKTOP]) {
          frame = await openApp(page, parent, theme, size);
          await waitUntilShown(frame, app.shown, text);
          await page.screenshot({ path: join(shots, `${slug}-${size.width}x${size.height}-${theme}.png`), animations: 'disabled' });
        }
      }
    }
  } catch (error) {
    // What the page complained of is usually why the step failed.
    if (complaints.length) error.message += `\n${complaints.join('\n')}`;
    throw error;
  }
  assert.deepEqual(complaints, [], 'the page complained');
}

async function main() {
  const gateway = new URL(setting('LINEKEEP_URL'));
  const slug = setting('LINEKEEP_SLUG');
  const token = encodeURIComponent(setting('LINEKEEP_TOKEN'));
  const data = setting('LINEKEEP_DATA');
  if (!Object.hasOwn(APPS, slug)) throw new Error(`LINEKEEP_SLUG is ${slug}, not one of ${Object.keys(APPS).join(', ')}`);

  const parent = await serveParent(theme =>
    new URL(`/apps/${slug}/~${token}/index.html?token=${token}&theme=${theme}&lang=en`, gateway).href);
  let browser;
  try {
    browser = await chromium.launch({
      executablePath: setting('CHROMIUM', '/usr/bin/chromium'),
      timeout: DEADLINE_MS / 2,
      args: [
        '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
        '--disable-component-update', '--disable-sync',
      ],
    });
    const link = new URL(`/apps/${slug}/~${token}/?token=${token}`, gateway).href;
    await firstLight(browser, parent, { slug, gateway, link, data, shots: process.env.LINEKEEP_SHOT });
    return slug;
  } finally {
    parent.server.closeAllConnections();
    parent.server.close();
    // A browser that does not close in time is killed by Playwright when this process exits.
    if (browser) await Promise.race([browser.close(), delay(CLOSE_MS)]);
  }
}

function delay(ms) {
  return new Promise(resolve => { setTimeout(resolve, ms); });
}

const deadline = delay(DEADLINE_MS - CLOSE_MS).then(() => { throw new Error(`not done after ${(DEADLINE_MS - CLOSE_MS) / 1000} s`); });
try {
  const slug = await Promise.race([main(), deadline]);
  console.log(`ok ${slug}`);
  process.exit(0);
} catch (error) {
  console.error(`failed: ${error.message}`);
  process.exit(1);
}

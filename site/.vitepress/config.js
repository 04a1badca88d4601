// The site is made of the pages of docs as they are: Markdown that a repository's pages show, too. `make site` builds it.
import { copyFileSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { defineConfig } from 'vitepress'
import { sidebar } from './sidebar.js'

const root = resolve(import.meta.dirname, '../..')
const docs = join(root, 'docs')
const repository = `https://${readFileSync(join(root, 'go.mod'), 'utf8').match(/^module (.+)$/m)[1]}`
const icon = readFileSync(join(root, 'httpd/dashboard/assets/icon.svg'), 'utf8')

// Files of docs that pages link to, and that are neither pages nor code: the site has them, too.
const files = new Set()

// slug is the anchor that a repository's page gives a heading.
const slug = (heading) => heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replaceAll(' ', '-')

// link changes a link of a page to a file or folder, which must exist, into one that the site has, or into one to the repository.
function link(token, page) {
  const [path, fragment] = token.attrGet('href').split('#')
  if (path === '' || /^[a-z]+:/.test(path)) return
  let file = join(dirname(page), decodeURI(path))
  if (!existsSync(file)) throw new Error(`${relative(root, page)} links to ${path}, which does not exist`)
  const folder = statSync(file).isDirectory()
  if (folder && existsSync(join(file, 'README.md'))) file = join(file, 'README.md')
  const inside = relative(docs, file)
  if (!inside.startsWith('..') && file.endsWith('.md')) {
    token.attrSet('href', `/${inside.replace(/README\.md$/, 'index.md')}${fragment ? `#${fragment}` : ''}`)
  } else if (inside.startsWith('..') || folder || file.endsWith('.go')) {
    token.attrSet('href', `${repository}/${folder ? 'tree' : 'blob'}/main/${relative(root, file)}${fragment ? `#${fragment}` : ''}`)
  } else {
    files.add(inside)
    token.attrSet('href', `/${inside}`)
    token.attrSet('download', '')
  }
}

export default defineConfig({
  title: 'Rollcall',
  description: 'A service registry that speaks the protocols of Eureka and Consul',
  head: [['link', { rel: 'icon', href: `data:image/svg+xml,${encodeURIComponent(icon)}` }]],
  srcDir: docs,
  outDir: join(root, 'data/site'),
  cacheDir: join(root, 'site/node_modules/.cache'),
  rewrites: (page) => page.replace(/README\.md$/, 'index.md'),
  markdown: {
    anchor: { slugify: slug },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config(md) {
      md.core.ruler.push('links-and-heads', ({ tokens, env }) => {
        for (const token of tokens.flatMap((t) => t.children ?? [])) if (token.type === 'link_open') link(token, env.path)
        for (const [i, token] of tokens.entries()) {
          if (token.type === 'th_open' && tokens[i + 1].content === '') token.tag = tokens[i + 2].tag = 'td'
        }
      })
    },
  },
  vite: {
    resolve: { alias: { vue: join(root, 'site/node_modules/vue') } }, // which the pages, compiled where they are, ask for
    build: { chunkSizeWarningLimit: 4096 }, // kB: the index of the search
  },
  themeConfig: {
    sidebar: sidebar(docs),
    outline: [2, 3],
    search: { provider: 'local' },
    nav: [{ text: 'Repository', link: repository }],
  },
  buildEnd({ outDir }) {
    for (const file of files) {
      mkdirSync(dirname(join(outDir, file)), { recursive: true })
      copyFileSync(join(docs, file), join(outDir, file))
    }
  },
})

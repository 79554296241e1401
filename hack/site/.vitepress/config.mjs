// The site of the repository's pages as they are. make runs it in the root, which it reads.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { withMermaid } from 'vitepress-plugin-mermaid'

const repository = 'https://github.com/cilium-pool/cilium-pool-operator'
const published = `${repository}/blob/main/`
const isPage = (file) => /^(docs\/.*|charts\/.*|examples\/.*|[^/]*)\.md$/.test(file)
const address = (page) => page.replace(/README\.md$/, 'index.md')
const capital = (text) => text[0].toUpperCase() + text.slice(1)

// The navigation is the index, docs/README.md: a group for each line with links to pages, with the words
// before them. The index of a folder, such as docs/kubectl/README.md, unfolds to the folder's pages.
function navigation(index) {
  return readFileSync(index, 'utf8').split('\n').flatMap((line) => {
    const items = [...line.matchAll(/\[([^\]]+)\]\(([^):#]+\.md)\)/g)].map(([, name, to]) => {
      const page = path.join(path.dirname(index), to)
      const item = { text: capital(name), link: '/' + address(page) }
      const items = page.endsWith('/README.md') ? pagesBeside(page) : []
      return items.length ? { ...item, collapsed: true, items } : item
    })
    return items.length ? [{ text: capital(line.match(/^[|* ]*([^|*]+?) *[|*]/)[1]), items }] : []
  })
}

function pagesBeside(index) {
  const folder = path.dirname(index)
  return readdirSync(folder).filter((name) => name.endsWith('.md') && name !== 'README.md').map((name) => {
    const page = path.join(folder, name)
    return { text: readFileSync(page, 'utf8').match(/^#+ (.*)$/m)[1], link: '/' + page }
  })
}

// siteLinks leads links to pages to the site, and links to other files to the repository.
function siteLinks(md) {
  md.core.ruler.push('site-links', ({ tokens, env }) => {
    const from = path.dirname(path.relative('.', env.realPath ?? env.path))
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href').replace(published, '/') : '#'
      if (/^(#|[a-z]+:)/.test(href)) continue
      const [, to, fragment] = href.match(/^([^#]*)(.*)$/)
      const file = to.startsWith('/') ? to.slice(1) : path.join(from, to)
      if (!existsSync(file)) throw new Error(`${env.path}: ${href} leads nowhere`)
      token.attrSet('href', isPage(file) ? `/${address(file)}${fragment}` : published + file + fragment)
    }
  })
}

export default withMermaid({
  title: 'cilium-pool-operator',
  description: 'An IPAM operator for Cilium: pools by node selector, small blocks, reclaim',
  srcDir: '../..',
  srcExclude: ['test/**'],
  outDir: '../../.run/site',
  cacheDir: './cache',
  rewrites: address,
  // The pages are above the folder that has Vue.
  vite: { resolve: { alias: { vue: path.resolve('.cache/site/node_modules/vue') } }, build: { chunkSizeWarningLimit: 3000 } },
  // Output of commands is wide. Diagrams are measured without the theme's line height.
  head: [['style', {}, '.VPDoc.has-aside .content-container { max-width: 60rem !important } .vp-doc .mermaid p { margin: 0; line-height: 1.5 }']],
  markdown: {
    config: siteLinks,
    // As GitHub names headings.
    anchor: { slugify: (text) => text.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-') },
  },
  themeConfig: {
    search: { provider: 'local' },
    sidebar: navigation('docs/README.md'),
    outline: [2, 3],
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/:path` },
  },
})

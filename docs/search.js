// How the site ranks what a search finds. Sphinx puts this before its own script.

const _QUERY = new URLSearchParams(location.search).get("q") || "";
const _WORDS = _QUERY.toLowerCase().split(/\s+/).filter((word) => word.length > 2);

// A site that is opened as files cannot read them for summaries; browsers forbid it.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

var Scorer = {
  // A page about the words comes before pages that have them, and a reference after an explanation.
  score: ([docname, title, anchor, descr, score]) => {
    const about = title.toLowerCase().split(" > ").pop();
    for (const word of _WORDS) if (about.includes(word)) score += anchor ? 10 : 20;
    if (_WORDS.length && about.startsWith(_WORDS[0])) score += 10;
    if (/^(keys|cheatsheet|glossary|examples|man\/)/.test(docname)) score -= 5;
    if (/^(site\/changelog|benchmarks|design)/.test(docname)) score -= 10;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// apiSettingsNote precedes the tables of settings.
const apiSettingsNote = "This operator with one setting changed, beside the defaults. A ServiceAccount is one with the rights of cluster-admin; in all other rows " +
	"the operator is an administrator of system:masters. In bold: how many times what the defaults take. One round has no range: repeat it before " +
	"calling a small difference one.\n\n"

func apiSettingsColumns() []column {
	return []column{{"seconds", "time, s", true}, {"cpu s", "own CPU, s", true}, {"apiserver cpu s", "API server CPU, s", true},
		{"etcd cpu s", "etcd CPU, s", true}, {"apiserver peak MiB", "API server peak RSS, MiB", true}, {"peak MiB", "own peak RSS, MiB", true},
		{"watched MiB", "sent by watches, MiB", false}, {"answered MiB", "otherwise, MiB", false},
		{streamedLists, "streamed lists", false}, {queueSeconds, "waited in queues, s", false}}
}

// apiSettingsTable returns a table for each task and size, with a row per setting.
func apiSettingsTable(k kept) string {
	var out strings.Builder
	for _, task := range []struct{ name, title string }{{"cold", "a cold start"}, {"restart", "a restart"}} {
		for _, measure := range k.variants(settingsOf + task.name) {
			for _, nodes := range slices.Sorted(maps.Keys(k.by[measure])) {
				m := k.by[measure][nodes]
				title := "Settings in " + task.title + strings.TrimPrefix(measure, settingsOf+task.name)
				if nodes != fullSize {
					title += fmt.Sprintf(", %d nodes", nodes)
				}
				fmt.Fprintf(&out, "### %s\n\n%sCommit %s.\n\n%s\n", title, apiSettingsNote, strings.Join(m.commits(), ", "), settingRows(m.samples))
			}
		}
	}
	return out.String()
}

func settingRows(samples []sample) string {
	var names []string
	notes := map[string][]string{}
	for _, s := range samples {
		if !slices.Contains(names, s.Contender) {
			names = append(names, s.Contender)
		}
		if s.Note != "" && !slices.Contains(notes[s.Contender], s.Note) {
			notes[s.Contender] = append(notes[s.Contender], s.Note)
		}
	}
	var out strings.Builder
	out.WriteString("| setting |")
	for _, c := range apiSettingsColumns() {
		out.WriteString(" " + c.title + " |")
	}
	out.WriteString(" |\n| --- |" + strings.Repeat(" --- |", len(apiSettingsColumns())+1) + "\n")
	for _, name := range names {
		out.WriteString("| " + asCode(name) + " |")
		for _, c := range apiSettingsColumns() {
			values, base := valuesOf(samples, name, c.value), valuesOf(samples, defaultSetting, c.value)
			out.WriteString(" " + cell(values, base, c.ratio && name != defaultSetting) + " |")
		}
		out.WriteString(" " + strings.ReplaceAll(strings.Join(notes[name], "; "), "|", "\\|") + " |\n")
	}
	return out.String()
}

// asCode formats flags and variables in the name of a setting as code.
func asCode(name string) string {
	words := strings.Fields(name)
	for i, word := range words {
		if strings.Contains(word, "=") {
			words[i] = "`" + word + "`"
		}
	}
	return strings.Join(words, " ")
}

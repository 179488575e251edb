// Package companyname compares names of companies as they stand on papers and in registers:
// case, punctuation, blanks, diacritics and legal forms are written in many ways.
package companyname

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Companies with these legal forms end their names with them, written without blanks and
// punctuation.
var legalForms = func() map[string]bool {
	forms := map[string]bool{}
	for _, f := range strings.Fields(`
		ag aktiengesellschaft ek ekfm ekfr eg ev gbr gmbh gesellschaftmbh gesellschaftmitbeschränkterhaftung gmbhcokg gmbhcokgaa ggmbh kg kgaa
		ohg partg partgmbb se ug ughaftungsbeschränkt
		co company corp corporation inc incorporated limited llc llp lp ltd plc pty ptyltd pte pteltd private dac cic cio
		bv bvba cv cvba nv sprl srl vof 
		sa sarl sas sasu sca scop scs snc eurl
		sl slu slne sll sau scoop scl
		srls spa sapa sc
		lda unipessoal unipessoallda
		ab aktiebolag hb as asa ans da ks nuf aps is ivs ps oy oyj ky tmi ehf hf
		spzoo spółkazoo spj spk spółkaakcyjna sro ops vos ks doo dd jdoo dno kft zrt nyrt bt kkt rt
		ood eood ad ead srld pfa ou oü tü uü uab ab mb sia as ik ae epe ike oe
		aş ltdşti kk gk bhd sdnbhd`) {
		forms[foldName(f)] = true
	}
	return forms
}()

// leadingForms are the legal forms that also stand before a name, as in "AB Volvo".
var leadingForms = map[string]bool{"ab": true, "as": true, "oy": true, "uab": true, "sia": true, "sa": true, "sas": true, "sarl": true}

// nameParts splits a name into its words and its legal form, "" if it states none. Case,
// punctuation, blanks and diacritics do not matter.
func nameParts(name string) (words, form string) {
	name = strings.NewReplacer(".", "", "'", "", "’", "", "/", "").Replace(foldName(name))
	tokens := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	leading := ""
	if len(tokens) > 1 && leadingForms[tokens[0]] {
		leading, tokens = tokens[0], tokens[1:]
	}
	end := len(tokens)
	for end > 1 {
		// A form may be written apart, as "B. V." or "sp. z o. o.".
		length := 0
		for n := 1; n <= 4 && n < end; n++ {
			if legalForms[strings.Join(tokens[end-n:end], "")] {
				length = n
			}
		}
		if length == 0 {
			break
		}
		end -= length
	}
	return strings.Join(tokens[:end], ""), leading + strings.Join(tokens[end:], "")
}

// foldName removes diacritics and folds case.
func foldName(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(cases.Fold().String(norm.NFKC.String(s))))
	return strings.NewReplacer("ø", "o", "ł", "l", "đ", "d", "æ", "ae", "œ", "oe", "ð", "d", "þ", "th", "ı", "i").Replace(s)
}

// spellings are the words of a name in the ways in which it is written: with letters without
// their diacritics, and with two letters for each umlaut.
func spellings(name string) (words []string, form string) {
	plain, form := nameParts(name)
	spelled, _ := nameParts(strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue", "å", "aa", "ø", "oe").Replace(
		norm.NFC.String(strings.ToLower(name))))
	return []string{plain, spelled}, form
}

func sameWords(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return s != "" && slices.Contains(b, s) })
}

// Same reports whether two names are of one company: they differ in case,
// punctuation, blanks, diacritics and legal form at most.
func Same(a, b string) bool {
	wordsA, _ := spellings(a)
	wordsB, _ := spellings(b)
	return sameWords(wordsA, wordsB)
}

// SameWithForm is Same, but two names that state different legal forms differ: companies of one
// group are often told apart by these alone.
func SameWithForm(a, b string) bool {
	wordsA, formA := spellings(a)
	wordsB, formB := spellings(b)
	return sameWords(wordsA, wordsB) && (formA == formB || formA == "" || formB == "")
}

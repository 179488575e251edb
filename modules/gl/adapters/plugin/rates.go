package plugin

import (
	"fmt"
	"math/big"
	"time"

	"github.com/erpbackbone/backbone/configs/demo"
)

// perEuro has the rates of the euro at the beginning of each year from 2010 on: units of the
// currency per euro, in ten-thousandths. They are rounded market rates for demonstrations
// only. The last figure holds for all later years. The rates of a currency that was
// replaced by the euro end with its last full year.
var perEuro = []struct {
	currency string
	lastYear int // 0: until today
	years    []int64
}{
	{"USD", 0, []int64{14400, 13400, 12950, 13200, 13750, 12100, 10850, 10500, 12000, 11450, 11200, 12250, 11350, 10680, 11050, 10380, 11750}},
	{"GBP", 0, []int64{8880, 8610, 8350, 8160, 8300, 7790, 7370, 8560, 8870, 8970, 8510, 8980, 8400, 8850, 8690, 8290, 8720}},
	{"CHF", 0, []int64{14840, 12500, 12150, 12080, 12260, 12020, 10840, 10720, 11700, 11270, 10860, 10810, 10350, 9870, 9290, 9410, 9310}},
	{"DKK", 0, []int64{74420, 74530, 74340, 74610, 74600, 74440, 74600, 74350, 74450, 74670, 74720, 74400, 74370, 74370, 74550, 74590, 74690}},
	{"NOK", 0, []int64{83000, 78000, 77500, 73500, 83600, 90400, 96000, 90800, 98400, 99500, 98600, 104700, 99900, 105100, 112400, 117900, 118400}},
	{"SEK", 0, []int64{102500, 89700, 89100, 85800, 88600, 94700, 91900, 95500, 98300, 102500, 104500, 100400, 102500, 111200, 110960, 114600, 108200}},
	{"PLN", 0, []int64{41050, 39750, 44600, 40750, 41550, 42700, 42650, 44100, 41800, 43000, 42570, 45600, 45970, 46810, 43400, 42750, 42270}},
	{"CZK", 0, []int64{264700, 250600, 257900, 251500, 274300, 277400, 270200, 270200, 255300, 257200, 254100, 262400, 248600, 241200, 247200, 251900, 242400}},
	{"HUF", 0, []int64{2704200, 2779500, 3145800, 2923000, 2970400, 3155400, 3159800, 3098300, 3103300, 3209800, 3305300, 3638900, 3691900, 4008700, 3828000, 4113500, 3851500}},
	{"RON", 0, []int64{42360, 42620, 43230, 44450, 44710, 44830, 45240, 45390, 46590, 46640, 47830, 48680, 49490, 49500, 49760, 49740, 50970}},
	{"ISK", 0, []int64{1799000, 1538000, 1590000, 1692000, 1584000, 1543000, 1415000, 1191000, 1245000, 1334000, 1358000, 1561000, 1476000, 1517000, 1507000, 1439000, 1472000}},
	{"BGN", 2025, []int64{19558}},
	{"HRK", 2022, []int64{73000, 73830, 75370, 75570, 76270, 76580, 76380, 75600, 74400, 74130, 74400, 75520, 75160}},
}

// rate is a spot rate: units of the book currency for one unit of From.
type rate struct {
	From  string
	To    string
	Date  string // ISO, the first of a quarter
	Value string // decimal with eight places
}

// quarterlyRates returns quarterly spot rates of 2010 to 2030 to the book currency, by currency
// and then by date. It interpolates linearly between the figures of two years. Monthly ones would
// be four fifths of the demonstration's events, and of the time of its first start.
func quarterlyRates(book string) ([][]rate, error) {
	bookIndex := -1
	if book != "EUR" {
		for i, c := range perEuro {
			if c.currency == book {
				bookIndex = i
			}
		}
		if bookIndex < 0 {
			return nil, fmt.Errorf("no demonstration rates to %s", book)
		}
	}
	euro := func(i, month int) *big.Rat { // units of currency i for one euro
		if i < 0 {
			return big.NewRat(1, 1)
		}
		y := perEuro[i].years
		at := func(n int) int64 { return y[min(n, len(y)-1)] }
		year, m := month/12, int64(month%12)
		return big.NewRat(at(year)*(12-m)+at(year+1)*m, 12*10_000)
	}
	var out [][]rate
	for i := -1; i < len(perEuro); i++ {
		if i == bookIndex {
			continue
		}
		from, last := "EUR", demo.LastYear
		if i >= 0 {
			from = perEuro[i].currency
			if perEuro[i].lastYear != 0 {
				last = perEuro[i].lastYear
			}
		}
		var series []rate
		for month := 0; month < (last-demo.FirstYear+1)*12; month += 3 {
			value := new(big.Rat).Quo(euro(bookIndex, month), euro(i, month))
			day := time.Date(demo.FirstYear, time.Month(1+month), 1, 0, 0, 0, 0, time.UTC)
			series = append(series, rate{From: from, To: book, Date: day.Format(time.DateOnly), Value: value.FloatString(8)})
		}
		out = append(out, series)
	}
	return out, nil
}

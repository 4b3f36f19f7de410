package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/cores"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// ListInput is what every list takes in addition to its filters. It is exported because huma leaves other embedded
// fields out.
type ListInput struct {
	Continue string   `query:"continue" maxLength:"1024" doc:"Go on where an answer with this continue ended. The filters and the order must be the same."`
	Sort     string   `query:"sort" maxLength:"32" doc:"Field to sort by; with a minus before it, the greatest first."`
	Fields   []string `query:"fields" maxItems:"50" doc:"Only these fields of each item, separated by commas."`
}

func (ListInput) isList() {}

// first puts a list together before the director's other work. Steps of many plans take all cores for minutes, and
// people look at lists meanwhile. tagged comes before it: a caller who reads slowly does not hold a place among the
// first. So does authenticate: strangers are not first.
func first(ctx huma.Context, next func(huma.Context)) { cores.First(func() { next(ctx) }) }

// cursor is the content of continue. Callers are told that it is opaque.
type cursor struct {
	Sort   string `json:"s"`
	Value  string `json:"v"`
	Name   string `json:"n"`
	Filter string `json:"f"` // fingerprint of the filters: with others, the place would mean nothing
}

// page turns the input into a part of a list. usual is the order when none is asked for, such as "-created_at"; filters
// are all that narrows the list.
func (in ListInput) page(limit int, usual string, filters ...any) (director.Page, error) {
	sort := in.Sort
	if sort == "" {
		sort = usual
	}
	p := director.Page{Limit: limit}
	p.Sort, p.Desc = strings.CutPrefix(sort, "-")
	if in.Continue == "" {
		return p, nil
	}
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(in.Continue)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return p, invalidQuery(
			"continue", "is not one that this list has given", "start the list again, without continue",
		)
	}
	if c.Sort != sort || c.Filter != fingerprint(filters) {
		return p, invalidQuery(
			"continue", "belongs to a list with other filters or another order", "repeat them, or start the list again",
		)
	}
	p.After = &director.Place{Value: c.Value, Name: c.Name}
	return p, nil
}

// next is the continue of an answer that ends at the place; empty at the end of the list.
func next(p director.Page, place *director.Place, filters ...any) string {
	if place == nil {
		return ""
	}
	sort := p.Sort
	if p.Desc {
		sort = "-" + sort
	}
	// texts always marshal
	raw, _ := json.Marshal(cursor{Sort: sort, Value: place.Value, Name: place.Name, Filter: fingerprint(filters)})
	return base64.RawURLEncoding.EncodeToString(raw)
}

func fingerprint(filters []any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", filters))
	return hex.EncodeToString(sum[:4])
}

// oneOf refuses an order that the list does not have, naming those that it has.
func oneOf(p director.Page, orders ...string) error {
	if slices.Contains(orders, p.Sort) {
		return nil
	}
	return invalidQuery("sort", "cannot be "+p.Sort, "one of "+strings.Join(orders, ", "))
}

func invalidQuery(name, msg, hint string) error {
	return director.Invalid("api.query", "the query is wrong", []director.Field{
		{Path: "query." + name, Msg: msg, Hint: hint},
	})
}

// listAnswer is the answer of a list: all of its items, or the chosen fields of them, and where it continues.
// others are further fields of the answer.
func listAnswer[T any](
	api huma.API, items []T, fields []string, next string, others ...map[string]any,
) (*anyOf, error) {
	if items == nil {
		items = []T{}
	}
	answer := map[string]any{"items": items}
	for _, o := range others {
		maps.Copy(answer, o)
	}
	if next != "" {
		answer["continue"] = next
	}
	if len(fields) > 0 {
		some, err := choose(items, fields)
		if err != nil {
			return nil, err
		}
		answer["items"] = some
	}
	return &anyOf{Body: func(ctx huma.Context) {
		linkNext(ctx, next)
		jsonBody(api, answer).Body(ctx)
	}}, nil
}

// linkNext says in the header where the list continues, for bodies that have no room for it.
func linkNext(ctx huma.Context, next string) {
	if next == "" {
		return
	}
	u := ctx.URL()
	q := u.Query()
	q.Set("continue", next)
	ctx.SetHeader("Link", "<"+u.Path+"?"+q.Encode()+`>; rel="next"`)
}

// listing describes an operation that answers with a list of T.
func listing[T any](api huma.API, op huma.Operation, others ...string) huma.Operation {
	op.Method = http.MethodGet
	op.Description = strings.TrimSpace(op.Description +
		" A part of the list comes with the continue of the next one, also as a Link header. " +
		"With fields, items hold those fields alone.")
	op = describe[T](api, op, others...)
	op.Responses["200"].Headers = map[string]*huma.Param{
		"Link": {Description: "Where the list continues, with rel=next.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
	return op
}

func summariesOf(items []plan.Item) []wire.PlanSummary {
	out := make([]wire.PlanSummary, len(items))
	for i, v := range items {
		out[i] = wire.SummaryOf(v.Plan, v.State)
		out[i].StepsDone, out[i].StepsTotal = v.Done, v.Total
	}
	return out
}

package api

import (
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
)

// conditionInput is how HTTP says a Condition.
type conditionInput struct {
	IfMatch     string
	IfNoneMatch string
}

func (in conditionInput) condition() (documents.Condition, error) {
	c := documents.Condition{Tags: tagsOf(in.IfMatch)}
	switch tags := tagsOf(in.IfNoneMatch); {
	case len(tags) == 0:
	case len(tags) == 1 && tags[0] == "*":
		c.Absent = true
	default:
		return c, director.Invalid("api.condition", "the condition is wrong", []director.Field{
			{
				Path: "header.If-None-Match", Msg: "only * makes sense for a change",
				Hint: "If-Match names the version to change",
			},
		})
	}
	return c, nil
}

// tagsOf takes a list of entity tags apart. Weak ones are taken for what they weaken: ours do not differ.
func tagsOf(header string) []string {
	var tags []string
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// unmodified reports whether a caller who has one of the tags has the document already.
func unmodified(ifNoneMatch string, d model.Stored) bool {
	tags := tagsOf(ifNoneMatch)
	return slices.Contains(tags, "*") || slices.Contains(tags, documents.ETag(d))
}

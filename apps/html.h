// Pieces of an HTML page that stands alone: no scripts, fonts or pictures from elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvant::cli {

// The text as it may stand between tags and inside quoted attributes.
std::string EscapeHtml(std::string_view text);

// A whole page. title is text; body is HTML.
std::string HtmlPage(std::string_view title, std::string_view body);

// Text as a heading of level 1 to 3, and as a paragraph of explanation.
std::string HtmlHeading(int level, std::string_view text);
std::string HtmlParagraph(std::string_view text);

// A table; cells are text. The first `text_columns` columns are flush left, numbers flush right.
std::string HtmlTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows, size_t text_columns = 1);

}  // namespace kvant::cli
